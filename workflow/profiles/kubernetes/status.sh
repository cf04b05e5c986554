#!/bin/sh
# status.sh JOB: print the state of a Kubernetes Job for Snakemake. While Kubernetes does not answer, a Job counts as running.
# If the Job does not exist, it counts as failed, so that it runs again.
state=$(kubectl get job "$1" --ignore-not-found --output 'jsonpath=:{.status.conditions[?(@.status=="True")].type}') || state=:
case $state in
  *Complete*) echo success ;;
  *Failed* | '') echo failed ;;
  *) echo running ;;
esac
