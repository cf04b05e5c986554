#!/bin/sh
# status.sh JOB: print the state of a Kubernetes Job for Snakemake. A Job counts as running while Kubernetes does not answer,
# and as failed, so that it runs again, if it does not exist.
state=$(kubectl get job "$1" --ignore-not-found --output 'jsonpath=:{.status.conditions[?(@.status=="True")].type}') || state=:
case $state in
  *Complete*) echo success ;;
  *Failed* | '') echo failed ;;
  *) echo running ;;
esac
