#!/bin/sh
# sh train.sh SEED OUTPUT OVERRIDE...
# verl on the devices of this stage. What is the same for every variant stands here; what may differ comes as overrides.
set -eu
seed=$1 output=$2
shift 2
log="$output/metrics.jsonl"
# A run that goes on after a kill overwrites its log: what it has logged so far is kept, and put before the rest at the end.
if [ -e "$log" ]; then
  { cat "$log"; echo; } >>"$output/earlier.log"
fi
folder=$(printf %s "$output" | sed "s/'/\\\\'/g") # in Hydra's quotes
export VERL_FILE_LOGGER_PATH="$log"
export PYTHONPATH="$PWD:$PWD/../..${PYTHONPATH:+:$PYTHONPATH}" # where Ray's workers find losses.py, and its trainers.objectives
python -m verl.trainer.main_ppo --config-dir "$PWD/hydra" --config-name ablation \
  data.seed="$seed" actor_rollout_ref.actor.data_loader_seed="$seed" actor_rollout_ref.actor.fsdp_config.seed="$seed" \
  actor_rollout_ref.rollout.seed="$seed" \
  "trainer.default_local_dir='$folder/checkpoints'" trainer.resume_mode=auto \
  "trainer.validation_data_dir='$folder/validation'" 'trainer.logger=[console,file]' "$@"
if [ -e "$output/earlier.log" ]; then
  cat "$output/earlier.log" "$log" >"$log.whole"
  mv "$log.whole" "$log"
  rm "$output/earlier.log"
fi
