#!/bin/sh
# status.sh JOBID: print the state of a Slurm job for Snakemake. While Slurm does not answer, a job counts as running. If
# neither slurmctld nor the accounting has the job, it counts as failed, so that it runs again.
state=$(squeue --states=all --noheader --format=%T --jobs "$1" 2>&1) || case $state in
  *"Invalid job id"*)
    state=$(sacct -X --noheader --parsable2 --format=State --jobs "$1" 2>/dev/null) || state=FAILED
    # As long as slurmctld has the job, Slurm may requeue it.
    case $state in PREEMPTED* | REVOKED*) state=FAILED ;; esac ;;
  *) state= ;;
esac
case $state in
  COMPLETED*) echo success ;;
  BOOT_FAIL* | CANCELLED* | DEADLINE* | FAILED* | NODE_FAIL* | OUT_OF_MEMORY* | TIMEOUT*) echo failed ;;
  *) echo running ;;
esac
