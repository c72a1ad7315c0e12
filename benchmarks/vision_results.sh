#!/usr/bin/env bash
# The runs behind results/vision_*.json, for one NVIDIA H200. What is finished in FOLDER is not computed again.
#
#   benchmarks/vision_results.sh RUN [FOLDER]
#
# RUN is one of these, a million steps each, with the published weights if nothing else is said:
#
# goto-goal        ActSafe on PointGotoGoal, phases shortened in proportion, the released budget
# goto-goal-wary   the same with a pessimism that matters
# cartpole         ActSafe on the sparse CartpoleSwingup, an expansion of 580,000 steps, the released budget
# cartpole-bold    ActSafe there: exploring until step 700,000, a tenth of the pessimism, our budget, and a replay that
#                  forgets the warm-up by step 160,000
# cartpole-bolder  the same, and its actor follows the gradient of doubt
# cartpole-steady  as cartpole-bold after a warm-up of 60,000 steps, but the replay forgets nothing, and dreams that begin
#                  in its last 120,000 steps count
#
# UPDATES (100) is the number of updates per 1000 steps, SEED (0) the seed, and ALGORITHM (actsafe) may be another row of
# the table, for instance greedy, with a FOLDER of its own. ACTSAFE is the command, if it is not `actsafe`.
set -euo pipefail
which=${1:?usage: benchmarks/vision_results.sh RUN [FOLDER]; RUN as listed in this file}
folder=${2:-runs/vision-results}/$which
actsafe=${ACTSAFE:-actsafe}
short=(steps_per_epoch=20000 schedule.total=1000000 evaluate_every=50 updates_per_1000_steps="${UPDATES:-100}")

reproduce() { # EXPERIMENT SETTING...
    mkdir -p "$folder"
    $actsafe reproduce "$1" --algorithms "${ALGORITHM:-actsafe}" --seeds "${SEED:-0}" --out "$folder/$1" \
        --results "$folder/$1.json" --set "${short[@]}" "${@:2}"
}

goto_goal=(agent.is_budget_released=true schedule.warm_up=40000 schedule.expansion=100000 replay_capacity=100000)
slow=(agent.is_budget_released=true schedule.warm_up=20000 schedule.expansion=600000 replay_capacity=200000)
bold=(schedule.expansion=700000 agent.doubt.pessimism=5)
short_replay=(schedule.warm_up=20000 replay_capacity=60000)
case $which in
goto-goal) reproduce point-goto-goal "${goto_goal[@]}" ;;
goto-goal-wary) reproduce point-goto-goal "${goto_goal[@]}" agent.doubt.pessimism=0.7 ;;
cartpole) reproduce cartpole-swingup-sparse "${slow[@]}" ;;
cartpole-bold) reproduce cartpole-swingup-sparse "${short_replay[@]}" "${bold[@]}" ;;
cartpole-bolder)
    reproduce cartpole-swingup-sparse "${short_replay[@]}" "${bold[@]}" agent.doubt.is_intrinsic_differentiated=true
    ;;
cartpole-steady)
    reproduce cartpole-swingup-sparse schedule.warm_up=60000 agent.recent_rows=60000 "${bold[@]}"
    ;;
*) echo "got '$which', expected one of the runs listed in $0" >&2 && exit 2 ;;
esac
