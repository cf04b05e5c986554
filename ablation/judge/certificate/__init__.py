"""The certificate: how often the words of this study's own pipeline are wrong where the truth is known."""
