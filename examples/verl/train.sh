#!/bin/sh
# sh train.sh SEED OUTPUT OVERRIDE...
# verl on the devices of this stage. What is the same for every variant stands here; what may differ comes as overrides.
set -eu
seed=$1 output=$2
shift 2
# A run that goes on after a kill opens its log anew, so what there is of it is put aside; both are read.
if [ -e "$output/metrics.jsonl" ]; then
  mkdir -p "$output/earlier"
  mv "$output/metrics.jsonl" "$output/earlier/metrics-$(date +%s).jsonl" # a bare number would be a step of the validation
fi
export VERL_FILE_LOGGER_PATH="$output/metrics.jsonl"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" # where Ray's workers find losses.py
folder=$(printf %s "$output" | sed "s/'/\\\\'/g") # in Hydra's quotes
exec python -m verl.trainer.main_ppo --config-dir "$PWD/hydra" --config-name ablation \
  data.seed="$seed" actor_rollout_ref.actor.data_loader_seed="$seed" actor_rollout_ref.actor.fsdp_config.seed="$seed" \
  actor_rollout_ref.rollout.seed="$seed" \
  "trainer.default_local_dir='$folder/checkpoints'" trainer.resume_mode=auto \
  "trainer.validation_data_dir='$folder/validation'" 'trainer.logger=[console,file]' "$@"
