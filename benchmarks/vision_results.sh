#!/usr/bin/env bash
# The runs behind results/vision_*.json, for one NVIDIA H200 if nothing else is said. What is finished in FOLDER is not
# computed again.
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
# cartpole-careful ActSafe there: exploring from step 40,000 until 600,000, a tenth of the pessimism, our budget, dreams that
#                  begin in the last epoch's rows count, steps of recovery as long as others, a barrier 20 times as
#                  heavy and critics that learn four times as fast
# cartpole-unwound the same, but that the reward's critic learns as fast as published, policies are charged for saturation, the
#                  task takes over once its own dreams let it, and updates come between episodes. Not made yet
#
# And of 400,000 steps from state with small networks, for a CPU, about a quarter of an hour for an algorithm and seed:
#
# cartpole-state           the released budget, a pessimism of 20, a replay that forgets nothing, dreams that begin in the
#                          last epoch's rows count, steps of recovery as long as others
# cartpole-state-loose     the same with our budget, which is twice as large
# cartpole-state-unwound   that with a heavier barrier, faster critics of costs, a charge for saturation, and the check before
#                          the task takes over
# cartpole-state-whole     that with updates between episodes only
# cartpole-state-recent    as -loose, with the released factor on steps of recovery, 0.01
# cartpole-state-released  and that with dreams that count wherever in the replay they begin, as released
#
# UPDATES (100, from state 30) is the number of updates per 1000 steps, SEEDS (0) the seeds, and ALGORITHMS
# (actsafe_released, which was the row actsafe before that deployed from a safe set) may be other rows of the table, such as
# greedy. ACTSAFE is the command, if it is not `actsafe`.
set -euo pipefail
which=${1:?usage: benchmarks/vision_results.sh RUN [FOLDER]; RUN as listed in this file}
folder=${2:-runs/vision-results}/$which
actsafe=${ACTSAFE:-actsafe}
# The runs whose results are kept were made before handing over was checked and, but for cartpole-state-unwound and -whole,
# before critics were bounded by recorded rewards, which nothing turns off: where a critic ran away a run comes out otherwise.
# An episode of ten environments has 10,000 steps: an epoch is 20,000, a run a million.
short=(schedule.episodes_per_epoch=2 evaluate_every=50 agent.updates_per_1000_steps="${UPDATES:-100}"
    agent.is_handover_checked=false agent.is_loss_recent=false)
read -ra algorithms <<< "${ALGORITHMS:-actsafe_released}"
read -ra seeds <<< "${SEEDS:-0}"

reproduce() { # EXPERIMENT SETTING...
    mkdir -p "$folder"
    $actsafe reproduce "$1" --algorithms "${algorithms[@]}" --seeds "${seeds[@]}" --out "$folder/$1" \
        --results "$folder/$1.json" --set "${short[@]}" "${@:2}"
}

goto_goal=(agent.is_budget_released=true schedule.warm_up=4 schedule.expansion=6
    schedule.exploitation=90 agent.replay_capacity=100000)
slow=(agent.is_budget_released=true schedule.warm_up=2 schedule.expansion=58 schedule.exploitation=40
    agent.replay_capacity=200000)
bold=(schedule.expansion=68 schedule.exploitation=30 agent.uncertainty.pessimism=5)
steady=(schedule.warm_up=2 agent.is_budget_released=true agent.uncertainty.pessimism=20 agent.recent_rows=10000
    agent.step.barrier.recovery_step=1.0)
careful=(schedule.warm_up=4 schedule.expansion=56 schedule.exploitation=40
    agent.uncertainty.pessimism=5 agent.recent_rows=10000
    agent.step.barrier.recovery_step=1.0 agent.step.barrier.initial_weight=2.0 agent.actor_critic.critic_rate=3.2e-4)
unwound=(agent.actor_critic.critic_rate=8e-5 agent.actor_critic.safety_critic_rate=3.2e-4
    agent.actor_critic.saturation_penalty=0.1 agent.is_handover_checked=true agent.decisions_per_cycle=501)
state=(observation=state schedule.expansion=18 schedule.exploitation=20
    agent.updates_per_1000_steps="${UPDATES:-30}"
    agent.precision=float32 agent.batch_size=8 agent.sequence_length=16 agent.model_rate=6e-4
    agent.model.deterministic=48 agent.model.stochastic=12 agent.model.hidden=48
    agent.model.head_width=64 agent.model.head_depth=2
    agent.actor_critic.actor_width=64 agent.actor_critic.actor_depth=2 agent.actor_critic.actor_rate=2e-4
    agent.actor_critic.critic_width=64 agent.actor_critic.critic_depth=2 agent.actor_critic.critic_rate=2e-4)
loose=("${steady[@]}" "${state[@]}" agent.is_budget_released=false)
state_unwound=(agent.step.barrier.initial_weight=2.0 agent.actor_critic.safety_critic_rate=8e-4
    agent.actor_critic.saturation_penalty=0.1 agent.is_handover_checked=true)
short_replay=(schedule.warm_up=2 agent.replay_capacity=60000)
case $which in
goto-goal) reproduce point-goto-goal "${goto_goal[@]}" ;;
goto-goal-wary) reproduce point-goto-goal "${goto_goal[@]}" agent.uncertainty.pessimism=0.7 ;;
cartpole) reproduce cartpole-swingup-sparse "${slow[@]}" ;;
cartpole-bold) reproduce cartpole-swingup-sparse "${short_replay[@]}" "${bold[@]}" ;;
cartpole-bolder)
    reproduce cartpole-swingup-sparse "${short_replay[@]}" "${bold[@]}" agent.uncertainty.is_intrinsic_differentiated=true
    ;;
cartpole-careful) reproduce cartpole-swingup-sparse "${careful[@]}" ;;
cartpole-unwound) reproduce cartpole-swingup-sparse "${careful[@]}" "${unwound[@]}" ;;
cartpole-state) reproduce cartpole-swingup-sparse "${steady[@]}" "${state[@]}" ;;
cartpole-state-loose) reproduce cartpole-swingup-sparse "${loose[@]}" ;;
cartpole-state-unwound) reproduce cartpole-swingup-sparse "${loose[@]}" "${state_unwound[@]}" ;;
cartpole-state-whole) reproduce cartpole-swingup-sparse "${loose[@]}" "${state_unwound[@]}" agent.decisions_per_cycle=501 ;;
cartpole-state-recent)
    reproduce cartpole-swingup-sparse "${loose[@]}" agent.step.barrier.recovery_step=0.01
    ;;
cartpole-state-released)
    reproduce cartpole-swingup-sparse "${loose[@]}" agent.step.barrier.recovery_step=0.01 agent.recent_rows=0
    ;;
*) echo "got '$which', expected one of the runs listed in $0" >&2 && exit 2 ;;
esac
