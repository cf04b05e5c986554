"""Code that trains and evaluates models, stage by stage; of the tracker it imports only `runner` and `contract`."""
