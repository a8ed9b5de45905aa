//! Script of faults: a list of steps, the same for the same seed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::Serialize;

use super::fault::Fault;

/// Milliseconds for which a flapping replica stays up, and then down.
const FLAP_MS: u64 = 2_000;

/// Faults of the mixed part.
const MIXED_FAULTS: [Fault; 7] = [
    Fault::Killed,
    Fault::Hung,
    Fault::Slowed,
    Fault::Status500,
    Fault::Flapping,
    Fault::Added,
    Fault::Drained,
];

/// Range of gaps between the starts of episodes of the mixed part, in milliseconds; the next
/// constant is the range of their length. An episode never lasts longer than two gaps, so at most
/// two overlap and enough replicas are left for the load.
const EPISODE_GAP_MS: (u64, u64) = (3_500, 5_000);
const EPISODE_LENGTH_MS: (u64, u64) = (4_000, 7_000);

/// Quiet time in milliseconds at the end of the mixed part, in which everything must recover.
const QUIET_MS: u64 = 8_000;

/// Phases of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Timeline {
    /// Load without measurement: connections open and caches fill.
    pub(crate) warm_up: Duration,
    /// Load without a fault.
    pub(crate) before: Duration,
    /// Time from the fault until everything should have settled.
    pub(crate) transition: Duration,
    /// Time from then until recovery.
    pub(crate) during: Duration,
    /// Time from recovery to the end.
    pub(crate) after: Duration,
}

/// Action on a replica or on the gateway's config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    /// The emulator breaks the replica.
    Break(u16, Fault),
    /// The emulator heals the replica.
    Heal(u16),
    /// Replicas join the config file: the first index and the number of them.
    Join(u16, u16),
    /// The replica leaves the config file.
    Leave(u16),
    /// The gateway drains the replica, by a command.
    Drain(u16),
    /// The gateway uses the replica again, by a command.
    Resume(u16),
}

/// Action with its due time from the start of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ScriptStep {
    pub(crate) at: Duration,
    pub(crate) action: Action,
}

impl Timeline {
    /// Returns the time of the fault.
    pub(crate) fn fault_at(&self) -> Duration {
        self.warm_up + self.before
    }

    /// Returns the time at which everything should have settled.
    pub(crate) fn settled_at(&self) -> Duration {
        self.fault_at() + self.transition
    }

    /// Returns the time of recovery.
    pub(crate) fn recovery_at(&self) -> Duration {
        self.settled_at() + self.during
    }

    /// Returns the time at which the load ends.
    pub(crate) fn end_at(&self) -> Duration {
        self.recovery_at() + self.after
    }
}

/// Returns the steps of one cell of the matrix.
pub(crate) fn single(fault: Fault, replica: u16, timeline: &Timeline) -> Vec<ScriptStep> {
    episode(fault, replica, timeline.fault_at(), timeline.recovery_at())
}

/// Returns the replicas that are in the config at first.
pub(crate) fn first_members(fault: Fault, replica: u16, count: u16) -> BTreeSet<u16> {
    (0..count).filter(|index| fault != Fault::Added || *index != replica).collect()
}

/// Returns faults in random order on the replicas `0..members`, each in at most one episode at a
/// time. The replica `members` is in the config only during episodes of [`Fault::Added`].
pub(crate) fn mixed(seed: u64, timeline: &Timeline, members: u16) -> Vec<ScriptStep> {
    let mut dice = fastrand::Rng::with_seed(seed);
    let last = timeline.end_at().saturating_sub(Duration::from_millis(QUIET_MS));
    let mut busy_until: BTreeMap<u16, Duration> = BTreeMap::new();
    let mut bag = Vec::new();
    let mut steps = Vec::new();
    let mut at = timeline.warm_up;
    loop {
        at += millis(&mut dice, EPISODE_GAP_MS.0, EPISODE_GAP_MS.1);
        let until = at + millis(&mut dice, EPISODE_LENGTH_MS.0, EPISODE_LENGTH_MS.1);
        // No episode may reach into the quiet time.
        if until > last {
            break;
        }
        // Each fault is drawn once before any is drawn again.
        if bag.is_empty() {
            bag = MIXED_FAULTS.to_vec();
            dice.shuffle(&mut bag);
        }
        let is_free = |index: &u16| busy_until.get(index).is_none_or(|busy| *busy < at);
        let Some(fault) = bag.pop() else { break };
        let candidates = if fault == Fault::Added { members..members + 1 } else { 0..members };
        let Some(replica) = dice.choice(candidates.filter(is_free).collect::<Vec<_>>()) else {
            // All candidates are in other episodes: the fault waits for a later turn.
            bag.insert(0, fault);
            continue;
        };
        busy_until.insert(replica, until);
        steps.extend(episode(fault, replica, at, until));
        if fault == Fault::Added {
            // So that a later episode can add the replica again.
            steps.push(ScriptStep { at: until, action: Action::Leave(replica) });
        }
    }
    // Episodes of different replicas overlap, and the stage plays steps in this order.
    steps.sort_by_key(|step| step.at);
    steps
}

fn millis(dice: &mut fastrand::Rng, from: u64, to: u64) -> Duration {
    Duration::from_millis(dice.u64(from..=to))
}

/// Returns the steps of one fault of one replica, from its start to its end.
fn episode(fault: Fault, replica: u16, from: Duration, until: Duration) -> Vec<ScriptStep> {
    let both = |first, last| {
        vec![ScriptStep { at: from, action: first }, ScriptStep { at: until, action: last }]
    };
    match fault {
        Fault::None => Vec::new(),
        Fault::Added => vec![ScriptStep { at: from, action: Action::Join(replica, 1) }],
        Fault::Drained => both(Action::Leave(replica), Action::Join(replica, 1)),
        Fault::DrainedByAdmin => both(Action::Drain(replica), Action::Resume(replica)),
        Fault::Flapping => flaps(replica, from, until),
        Fault::Killed
        | Fault::Hung
        | Fault::Slowed
        | Fault::Status500
        | Fault::Cut
        | Fault::Stalled
        | Fault::Busy => both(Action::Break(replica, fault), Action::Heal(replica)),
    }
}

fn flaps(replica: u16, from: Duration, until: Duration) -> Vec<ScriptStep> {
    let mut steps = Vec::new();
    let mut at = from;
    while at < until {
        let is_down = steps.len() % 2 == 1;
        let action =
            if is_down { Action::Heal(replica) } else { Action::Break(replica, Fault::Flapping) };
        steps.push(ScriptStep { at, action });
        at += Duration::from_millis(FLAP_MS);
    }
    if steps.len() % 2 == 1 {
        // The last flap broke the replica.
        steps.push(ScriptStep { at: until, action: Action::Heal(replica) });
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(seconds: u64) -> Timeline {
        let second = Duration::from_secs(1);
        Timeline {
            warm_up: 3 * second,
            before: Duration::ZERO,
            transition: Duration::ZERO,
            during: second * u32::try_from(seconds).unwrap(),
            after: Duration::ZERO,
        }
    }

    /// Goes through the steps, and panics at one that makes no sense. Returns the largest number of
    /// replicas that were broken, added or removed at a time.
    fn replay(steps: &[ScriptStep], members: u16) -> usize {
        let usual: BTreeSet<u16> = (0..members).collect();
        let mut in_config = usual.clone();
        let mut broken = BTreeSet::new();
        let mut most = 0;
        for step in steps {
            match step.action {
                Action::Break(replica, _) => {
                    assert!(in_config.contains(&replica), "{step:?}");
                    assert!(broken.insert(replica), "{step:?}");
                }
                Action::Heal(replica) => assert!(broken.remove(&replica), "{step:?}"),
                Action::Join(replica, 1) => assert!(in_config.insert(replica), "{step:?}"),
                Action::Leave(replica) => {
                    assert!(!broken.contains(&replica), "{step:?}");
                    assert!(in_config.remove(&replica), "{step:?}");
                }
                other => panic!("{other:?}"),
            }
            let moved = in_config.symmetric_difference(&usual).count();
            most = most.max(broken.len() + moved);
        }
        assert_eq!((in_config, broken), (usual, BTreeSet::new()));
        most
    }

    #[test]
    fn every_mixed_script_is_possible_and_ends_healed_and_quiet() {
        for seed in 0..300 {
            let timeline = timeline(60);
            let steps = mixed(seed, &timeline, 5);
            assert!(replay(&steps, 5) <= 2, "seed {seed}");
            let last = steps.last().unwrap().at;
            assert!(last + Duration::from_millis(QUIET_MS) <= timeline.end_at(), "seed {seed}");
            assert!(steps.is_sorted_by_key(|step| step.at));
        }
    }

    #[test]
    fn each_fault_comes_up_and_the_order_goes_by_the_seed() {
        let steps = mixed(7, &timeline(60), 5);
        assert_eq!(steps, mixed(7, &timeline(60), 5));
        assert_ne!(steps, mixed(8, &timeline(60), 5));
        for fault in MIXED_FAULTS {
            let is_it = |step: &ScriptStep| match step.action {
                Action::Break(_, kind) => kind == fault,
                Action::Join(replica, _) => (fault == Fault::Added) == (replica == 5),
                _ => false,
            };
            assert!(steps.iter().any(is_it), "{fault:?} in {steps:?}");
        }
    }

    #[test]
    fn a_flapping_replica_is_up_at_the_end_whatever_the_length() {
        for seconds in 3..12 {
            let steps = flaps(1, Duration::from_secs(1), Duration::from_secs(1 + seconds));
            assert!(replay(&steps, 2) == 1);
            assert!(steps.len() >= 2 && steps.last().unwrap().at.as_secs() <= 1 + seconds);
        }
    }

    #[test]
    fn a_cell_has_its_fault_between_the_phases() {
        let second = Duration::from_secs(1);
        let timeline = Timeline {
            warm_up: 3 * second,
            before: 5 * second,
            transition: 3 * second,
            during: 4 * second,
            after: 5 * second,
        };
        let steps = single(Fault::Hung, 1, &timeline);
        let expected = [
            ScriptStep { at: 8 * second, action: Action::Break(1, Fault::Hung) },
            ScriptStep { at: 15 * second, action: Action::Heal(1) },
        ];
        assert_eq!(steps, expected);
        assert_eq!(timeline.end_at(), 20 * second);
        assert!(single(Fault::None, 1, &timeline).is_empty());
        assert_eq!(first_members(Fault::Added, 3, 4), BTreeSet::from([0, 1, 2]));
        assert_eq!(first_members(Fault::Drained, 3, 4).len(), 4);
    }
}
