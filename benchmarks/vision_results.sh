#!/usr/bin/env bash
# The runs behind results/vision_*.json, for one NVIDIA H200. What is finished in FOLDER is not computed again.
#
#   benchmarks/vision_results.sh goto-goal|greedy|cartpole [FOLDER]
#
# goto-goal  ActSafe on PointGotoGoal, a million steps, the released ratio of updates to steps
# greedy     the same without constraint, half as many updates
# cartpole   ActSafe on the sparse CartpoleSwingup, a million steps, half as many updates
#
# Phases are the paper's, shortened with the run. ACTSAFE is the command, if it is not `actsafe`.
set -euo pipefail
which=${1:?usage: benchmarks/vision_results.sh goto-goal|greedy|cartpole [FOLDER]}
folder=${2:-runs/vision-results}
actsafe=${ACTSAFE:-actsafe}
short=(steps_per_epoch=20000 schedule.warm_up=40000 schedule.total=1000000 replay_capacity=100000 evaluate_every=25)

reproduce() { # EXPERIMENT ALGORITHM SETTING...
    mkdir -p "$folder"
    $actsafe reproduce "$1" --algorithms "$2" --seeds "${SEED:-0}" --out "$folder/$1" \
        --results "$folder/$1-$2.json" --set "${short[@]}" "${@:3}"
}

case $which in
goto-goal) reproduce point-goto-goal actsafe schedule.expansion=100000 agent.is_budget_released=true ;;
greedy) reproduce point-goto-goal greedy schedule.expansion=100000 updates_per_1000_steps=50 ;;
cartpole) reproduce cartpole-swingup-sparse actsafe schedule.expansion=200000 agent.doubt.pessimism=10 \
    updates_per_1000_steps=50 ;;
*) echo "got '$which', expected goto-goal, greedy or cartpole" >&2 && exit 2 ;;
esac
