#!/usr/bin/env bash
# The runs behind results/vision_*.json, for one NVIDIA H200. What is finished in FOLDER is not computed again.
#
#   benchmarks/vision_results.sh goto-goal|cartpole|cartpole-greedy [FOLDER]
#
# goto-goal        ActSafe on PointGotoGoal, a million steps, phases shortened in proportion
# cartpole         ActSafe on the sparse CartpoleSwingup, a million steps, an expansion of 580,000 of them
# cartpole-greedy  the same without an expansion that explores
#
# All have the published weights and the released budget. UPDATES (100) is the number of updates per 1000 steps, SEED (0)
# the seed. ACTSAFE is the command, if it is not `actsafe`.
set -euo pipefail
which=${1:?usage: benchmarks/vision_results.sh goto-goal|cartpole|cartpole-greedy [FOLDER]}
folder=${2:-runs/vision-results}
actsafe=${ACTSAFE:-actsafe}
short=(steps_per_epoch=20000 schedule.total=1000000 evaluate_every=50 agent.is_budget_released=true
    updates_per_1000_steps="${UPDATES:-100}")

reproduce() { # EXPERIMENT ALGORITHM SETTING...
    mkdir -p "$folder"
    $actsafe reproduce "$1" --algorithms "$2" --seeds "${SEED:-0}" --out "$folder/$1" \
        --results "$folder/$1.json" --set "${short[@]}" "${@:3}"
}

goto_goal=(schedule.warm_up=40000 schedule.expansion=100000 replay_capacity=100000)
cartpole=(schedule.warm_up=20000 schedule.expansion=600000 replay_capacity=200000)
case $which in
goto-goal) reproduce point-goto-goal actsafe "${goto_goal[@]}" ;;
cartpole) reproduce cartpole-swingup-sparse actsafe "${cartpole[@]}" ;;
cartpole-greedy) reproduce cartpole-swingup-sparse greedy "${cartpole[@]}" ;;
*) echo "got '$which', expected goto-goal, cartpole or cartpole-greedy" >&2 && exit 2 ;;
esac
