#!/usr/bin/env bash
# stop_slurm.sh FOLDER: ends the jobs and the daemons that start_slurm.sh FOLDER started, and takes its links away.
folder=$(realpath -m "$1")
[ "$(readlink /etc/slurm/slurm.conf)" = "$folder/slurm.conf" ] || exit 0
scancel --full --user="$(id -un)"
for _ in $(seq 100); do
  [ -n "$(squeue --noheader)" ] || break
  sleep 0.1
done
for name in slurmd slurmctld munged; do
  id=$(cat "$folder/run/$name.pid" 2>/dev/null) || continue
  kill "$id"
  for _ in $(seq 100); do kill -0 "$id" 2>/dev/null || break; sleep 0.1; done
  ! kill -0 "$id" 2>/dev/null || kill -9 "$id"
done
rm -f /etc/slurm/{slurm,gres,cgroup}.conf
