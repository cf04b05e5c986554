#!/bin/sh
# status.sh JOB: what Snakemake is told of a Kubernetes Job. While nobody answers it counts as running; a Job that is gone, of
# which nothing is printed, has failed, and is run again.
state=$(kubectl get job "$1" --ignore-not-found --output 'jsonpath=:{.status.conditions[?(@.status=="True")].type}') || state=:
case $state in
  *Complete*) echo success ;;
  *Failed* | '') echo failed ;;
  *) echo running ;;
esac
