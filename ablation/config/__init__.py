"""The configuration: settings, studies, scales and variants, read strictly, merged and checked."""
