"""What is asked for: settings, studies, scales and variants, read strictly, merged and checked."""
