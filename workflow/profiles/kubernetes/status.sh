#!/bin/sh
# status.sh JOB: what Snakemake is told of a Kubernetes Job. While nobody answers it counts as running; a Job that is gone has
# failed, and is run again.
state=$(kubectl get job "$1" --output 'jsonpath={.status.conditions[?(@.status=="True")].type}' 2>&1) || case $state in
  *NotFound*) state=Failed ;;
  *) state= ;;
esac
case $state in
  *Complete*) echo success ;;
  *Failed*) echo failed ;;
  *) echo running ;;
esac
