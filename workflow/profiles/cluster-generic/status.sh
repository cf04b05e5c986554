#!/bin/sh
# status.sh JOBID: print the state of a Slurm job for Snakemake. A job counts as running while Slurm does not answer, and as
# failed, so that it runs again, if neither slurmctld nor the accounting knows it.
state=$(squeue --states=all --noheader --format=%T --jobs "$1" 2>&1) || case $state in
  *"Invalid job id"*)
    state=$(sacct -X --noheader --parsable2 --format=State --jobs "$1" 2>/dev/null) || state=FAILED
    # While slurmctld knows the job, it may be requeued.
    case $state in PREEMPTED* | REVOKED*) state=FAILED ;; esac ;;
  *) state= ;;
esac
case $state in
  COMPLETED*) echo success ;;
  BOOT_FAIL* | CANCELLED* | DEADLINE* | FAILED* | NODE_FAIL* | OUT_OF_MEMORY* | TIMEOUT*) echo failed ;;
  *) echo running ;;
esac
