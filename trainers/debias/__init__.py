"""Study `debias`: BiasEdit (a MALMEN hypernetwork) with GRPO objectives on StereoSet."""
