#!/usr/bin/env bash
# start_slurm.sh FOLDER: a bare Debian machine (root, no systemd, no cgroups) becomes a Slurm of one node with two fake GPUs.
# Everything but the packages and three links in /etc/slurm lies in FOLDER; stop_slurm.sh FOLDER ends it. About 10 s.
set -euo pipefail
folder=$(realpath -m "$1") host=$(hostname -s) cpus=${CPUS:-2}
mkdir -p "$folder"/{run,log,state,spool}
chmod 755 "$folder"

packages=(munge slurmctld slurmd slurm-client)
if ! dpkg-query -W "${packages[@]}" &>/dev/null; then
  # Where the machine would start daemons of its own at once, they must not: policy-rc.d refuses.
  [ -e /usr/sbin/policy-rc.d ] || { printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d; }
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${packages[@]}" >"$folder/log/apt.log" 2>&1 ||
    { tail "$folder/log/apt.log" >&2; exit 1; }
fi

(umask 077; head -c 1024 /dev/urandom >"$folder/munge.key")
munged --force --key-file="$folder/munge.key" --socket="$folder/run/munge" --pid-file="$folder/run/munged.pid" \
  --log-file="$folder/log/munged.log" --seed-file="$folder/run/munged.seed"

# A GPU must be a device, or Slurm hands out no numbers; any device will do.
cat >"$folder/gres.conf" <<END
Name=gpu File=/dev/null
Name=gpu File=/dev/zero
END
# No cgroups: a mount point that is not there.
cat >"$folder/cgroup.conf" <<END
CgroupPlugin=cgroup/v1
CgroupMountpoint=$folder/no-cgroup
CgroupAutomount=no
END
cat >"$folder/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/run/munge
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/slurmd-%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
KillWait=3
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
PropagateResourceLimits=NONE
NodeName=node1 NodeHostname=$host NodeAddr=127.0.0.1 Port=16818 CPUs=$cpus RealMemory=16000 Gres=gpu:2
PartitionName=main Nodes=node1 Default=YES DefaultTime=10 MaxTime=1-0
END
# SLURM_CONF would not do: Snakemake's jobs drop every SLURM_ variable before srun.
mkdir -p /etc/slurm
for name in slurm.conf gres.conf cgroup.conf; do
  [ ! -e "/etc/slurm/$name" ] || [ -L "/etc/slurm/$name" ] || { echo "/etc/slurm/$name: a Slurm is set up here" >&2; exit 1; }
  ln -sfn "$folder/$name" "/etc/slurm/$name"
done

slurmctld
nice -n "${NICE:-0}" slurmd -N node1 # jobs inherit it
for _ in $(seq 150); do
  [ "$(sinfo --noheader --states=idle --format=%D 2>/dev/null)" != 1 ] || exit 0
  sleep 0.1
done
tail -n 20 "$folder"/log/slurm*.log >&2
exit 1
