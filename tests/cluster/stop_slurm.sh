#!/usr/bin/env bash
# stop_slurm.sh FOLDER: ends the jobs and the daemons that start_slurm.sh FOLDER started, and takes its links away.
folder=$(realpath -m "$1")
ours() { [ "$(readlink "/etc/slurm/$1")" = "$folder/$1" ]; }

if ours slurm.conf; then
  scancel --full --user="$(id -un)"
  for _ in $(seq 100); do
    [ -n "$(squeue --noheader 2>/dev/null)" ] || break
    sleep 0.1
  done
fi
for name in slurmd-node1 slurmctld munged; do
  id=$(cat "$folder/run/$name.pid" 2>/dev/null) || continue
  kill "$id" 2>/dev/null || continue
  for _ in $(seq 100); do
    kill -0 "$id" 2>/dev/null || continue 2
    sleep 0.1
  done
  kill -9 "$id"
done
for name in slurm.conf gres.conf cgroup.conf; do
  ! ours "$name" || rm "/etc/slurm/$name"
done
