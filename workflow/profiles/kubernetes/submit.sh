#!/bin/sh
# submit.sh IMAGE CLAIM:FOLDER CPUS MB MINUTES GPUS SCRIPT: create a Kubernetes Job that runs Snakemake's script in this folder,
# which is on the volume, and print the Job's name. The Job does not retry, because Snakemake does. /dev/shm, which stages on
# several devices need, counts towards the pod's memory. The pod has the time limit, because a limit of the Job would include
# the wait for a machine.
exec kubectl create --output 'jsonpath={.metadata.name}' --filename - <<EOF
{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "ablation-"},
 "spec": {"backoffLimit": 0, "ttlSecondsAfterFinished": 86400,
  "template": {"spec": {"restartPolicy": "Never", "activeDeadlineSeconds": $(($5 * 60)),
   "containers": [{"name": "stage", "image": "$1", "workingDir": "$PWD", "command": ["/bin/sh", "$7"],
    "resources": {"requests": {"cpu": "$3", "memory": "$4Mi"}, "limits": {"memory": "$4Mi", "nvidia.com/gpu": "$6"}},
    "volumeMounts": [{"name": "results", "mountPath": "${2#*:}"}, {"name": "shm", "mountPath": "/dev/shm"}]}],
   "volumes": [{"name": "results", "persistentVolumeClaim": {"claimName": "${2%%:*}"}},
    {"name": "shm", "emptyDir": {"medium": "Memory"}}]}}}}
EOF
