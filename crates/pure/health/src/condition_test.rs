use super::*;
use crate::test_fleet::{ms, start};
use crate::verdict::Vote::{Bad, BadForLong, Good, Silent, Unresponsive, UnresponsiveForLong};

/// Condition with a clock.
struct Test {
    condition: Condition,
    now: Instant,
    rng: fastrand::Rng,
    is_stalled: bool,
    others: PeerReports,
}

impl Test {
    fn new() -> Self {
        let rng = fastrand::Rng::with_seed(3);
        let others = PeerReports::default();
        Self { condition: Condition::default(), now: start(), rng, is_stalled: false, others }
    }

    /// Makes one step with the votes of active, passive, deep and scrape.
    fn advance(&mut self, [active, passive, deep, scrape]: [Vote; 4]) -> Option<Shift> {
        let votes = Votes { active, passive, deep, scrape };
        let evidence = Evidence { votes, others: self.others, is_stalled: self.is_stalled };
        self.condition.advance(self.now, &evidence, &HealthConfig::default(), &mut self.rng)
    }

    fn wait(&mut self, wait_ms: u64) -> &mut Self {
        self.now += ms(wait_ms);
        self
    }

    fn eject(&mut self) -> &mut Self {
        self.condition.eject(self.now, &HealthConfig::default(), &mut self.rng);
        self
    }

    fn state(&self) -> ConditionState {
        self.condition.state()
    }
}

const IDLE: [Vote; 4] = [Silent; 4];
const WELL: [Vote; 4] = [Good, Good, Silent, Silent];
const DEAD: [Vote; 4] = [Bad, Bad, Silent, Silent];
const OUT: Shift = Shift::Out(ChangeReason::SignalsAgree);

#[test]
fn nothing_against_it_changes_nothing() {
    let mut test = Test::new();
    for votes in [IDLE, WELL, [Bad, Good, Silent, Silent], [Bad, Silent, Silent, Silent]] {
        assert_eq!(test.advance(votes), None, "{votes:?}");
    }
    assert_eq!(test.state(), ConditionState::Well);
}

#[test]
fn an_ejection_ends_by_a_trial_and_a_trial_by_good_answers() {
    let mut test = Test::new();
    test.eject().wait(4_999);
    assert_eq!(test.advance(IDLE), None);
    assert_eq!(test.wait(501).advance(IDLE), Some(Shift::ToTrial(ChangeReason::EjectionOver)));
    test.condition.on_answer();
    test.condition.on_answer();
    assert_eq!(test.advance(IDLE), None);
    test.condition.on_answer();
    assert_eq!(test.advance(IDLE), Some(Shift::Recovered(ChangeReason::TrialPassed)));
    assert_eq!(test.state(), ConditionState::Well);
}

#[test]
fn good_answers_before_a_trial_do_not_count_for_it() {
    let mut test = Test::new();
    test.eject();
    (0..9).for_each(|_| test.condition.on_answer());
    test.wait(5_501).advance(IDLE);
    assert_eq!(test.advance(IDLE), None);
    assert!(test.condition.is_on_trial());
}

#[test]
fn one_that_is_still_silent_or_still_answers_wrongly_is_not_tried() {
    let mut test = Test::new();
    test.eject().wait(60_000);
    test.is_stalled = true;
    assert_eq!(test.advance(IDLE), None);
    test.is_stalled = false;
    assert_eq!(test.advance([Good, Silent, Bad, Silent]), None);
    assert!(test.advance(IDLE).is_some());
}

#[test]
fn a_deep_check_ejects_for_as_long_as_it_fails_and_without_back_off() {
    let wrong = [Good, Good, Bad, Silent];
    let mut test = Test::new();
    assert_eq!(test.advance(wrong), Some(Shift::Out(ChangeReason::DeepCheckFailed)));
    assert_eq!(test.wait(3_600_000).advance(wrong), None);
    assert_eq!(
        test.advance([Good, Silent, Good, Silent]),
        Some(Shift::ToTrial(ChangeReason::EjectionOver))
    );
    assert_eq!(
        test.advance(wrong),
        Some(Shift::Out(ChangeReason::DeepCheckFailed)),
        "on trial as well"
    );
    assert_eq!(test.condition.repeats(), 0);
    assert!(!test.condition.is_ejected_by_traffic());
}

#[test]
fn two_signals_bring_it_down_from_everywhere() {
    let mut well = Test::new();
    let mut ejected = Test::new();
    ejected.eject();
    let mut trial = Test::new();
    trial.condition.begin_trial(Cause::Check);
    for test in [&mut well, &mut ejected, &mut trial] {
        assert_eq!(test.advance(DEAD), Some(OUT));
        assert!(matches!(test.state(), ConditionState::Down { .. }));
        assert_eq!(test.advance(DEAD), None);
    }
}

#[test]
fn only_active_checks_end_it_if_there_are_any() {
    let mut test = Test::new();
    test.advance(DEAD);
    assert_eq!(test.wait(3_600_000).advance([Bad, Silent, Silent, Good]), None);
    assert_eq!(test.advance([BadForLong, Silent, Silent, Good]), None);
    let risen = [Good, Bad, Silent, Silent];
    assert_eq!(test.advance(risen), Some(Shift::Reborn(ChangeReason::ActiveChecksRose)));
    assert_eq!(test.state(), ConditionState::Well);
}

#[test]
fn a_silent_replica_that_answers_again_has_lost_nothing() {
    let mut test = Test::new();
    let silent = [UnresponsiveForLong, Unresponsive, Silent, Unresponsive];
    assert_eq!(test.advance(silent), Some(OUT));
    assert_eq!(test.condition.down_cause(), Some(DownCause::Silence));
    assert_eq!(test.wait(4_000).advance(WELL), Some(Shift::Resumed(ChangeReason::AnswersAgain)));
    assert_eq!((test.state(), test.condition.down_cause()), (ConditionState::Well, None));
}

#[test]
fn a_silent_replica_that_then_refuses_connections_has_died() {
    let mut test = Test::new();
    test.advance([UnresponsiveForLong, Silent, Silent, Silent]);
    assert_eq!(test.advance([BadForLong, Silent, Silent, Silent]), None);
    assert_eq!(test.condition.down_cause(), Some(DownCause::Failure));
    assert_eq!(test.advance([UnresponsiveForLong, Silent, Silent, Silent]), None);
    assert_eq!(test.advance(WELL), Some(Shift::Reborn(ChangeReason::ActiveChecksRose)));
}

#[test]
fn without_active_checks_a_silent_replica_is_tried_with_the_cache_it_had() {
    let mut test = Test::new();
    let votes = [Silent, UnresponsiveForLong, Silent, Unresponsive];
    assert_eq!(test.advance(votes), Some(OUT));
    assert_eq!(test.wait(5_501).advance(votes), Some(Shift::ToTrial(ChangeReason::BackOffOver)));
}

#[test]
fn active_checks_do_not_end_it_while_two_others_agree() {
    let mut test = Test::new();
    let votes = [Good, Bad, Bad, Good];
    assert_eq!(test.advance(votes), Some(OUT));
    assert_eq!(test.wait(60_000).advance(votes), None);
    assert!(test.advance([Good, Bad, Good, Good]).is_some());
}

#[test]
fn without_active_checks_it_is_tried_after_its_back_off() {
    let mut test = Test::new();
    let votes = [Silent, BadForLong, Silent, Bad];
    assert_eq!(test.advance(votes), Some(OUT));
    assert_eq!(test.wait(4_999).advance(votes), None);
    assert_eq!(test.wait(501).advance(votes), Some(Shift::Reborn(ChangeReason::BackOffOver)));
    let lone = [Silent, Silent, Silent, BadForLong];
    assert_eq!(test.advance(lone), None, "no traffic could contradict it yet");
    assert_eq!(test.advance([Silent, Bad, Silent, Bad]), Some(OUT));
    assert_eq!(test.wait(9_999).advance(lone), None, "twice as long");
}

#[test]
fn two_checks_that_fail_keep_it_down_after_its_back_off() {
    let mut test = Test::new();
    let votes = [Silent, Silent, Bad, Bad];
    test.advance(votes);
    assert_eq!(test.wait(60_000).advance(votes), None);
}

#[test]
fn an_ejection_that_becomes_a_death_is_one_failure_and_not_two() {
    let mut test = Test::new();
    test.eject().advance(DEAD);
    assert_eq!(test.condition.repeats(), 1);
}

#[test]
fn a_trial_after_an_ejection_still_counts_for_the_pools_limit() {
    let mut test = Test::new();
    assert!(!test.condition.is_ejected_by_traffic());
    test.eject();
    assert!(test.condition.is_ejected_by_traffic());
    test.wait(5_501).advance(IDLE);
    assert!(test.condition.is_on_trial() && test.condition.is_ejected_by_traffic());
    (0..3).for_each(|_| test.condition.on_answer());
    test.advance(IDLE);
    assert!(!test.condition.is_ejected_by_traffic());
}

#[test]
fn the_back_off_is_forgotten_after_a_quiet_time_only() {
    for (quiet_ms, wait_ms) in [(119_999, 10_000), (120_000, 5_000)] {
        let mut test = Test::new();
        test.eject().wait(5_501).advance(IDLE);
        (0..3).for_each(|_| test.condition.on_answer());
        test.advance(IDLE);
        test.wait(quiet_ms).eject();
        assert_eq!(test.wait(wait_ms - 1).advance(IDLE), None, "{quiet_ms}");
        assert!(test.wait(wait_ms / 10 + 1).advance(IDLE).is_some(), "{quiet_ms}");
    }
}

#[test]
fn being_up_for_long_makes_up_for_having_been_down() {
    for (quiet_ms, wait_ms) in [(119_999, 10_000), (120_000, 5_000)] {
        let mut test = Test::new();
        test.advance(DEAD);
        test.wait(60_000).advance(WELL);
        test.wait(quiet_ms).eject();
        assert_eq!(test.wait(wait_ms - 1).advance(IDLE), None, "{quiet_ms}");
        assert!(test.wait(wait_ms / 10 + 1).advance(IDLE).is_some(), "{quiet_ms}");
    }
}

#[test]
fn a_trial_keeps_the_cause_it_came_from() {
    let mut test = Test::new();
    test.condition.begin_trial(Cause::Down);
    test.eject();
    assert!(matches!(test.state(), ConditionState::Ejected { by: Cause::Down, .. }));
    test.wait(5_501).advance(IDLE);
    assert_eq!(test.state(), ConditionState::Trial { goods: 0, by: Cause::Down });
}

#[test]
fn most_of_the_region_takes_it_out_here_and_lets_it_back() {
    let mut test = Test::new();
    test.others = PeerReports::of([Votes::reported(2), Votes::reported(1)]);
    assert_eq!(test.advance(WELL), Some(Shift::Out(ChangeReason::RegionAgrees)));
    assert!(!test.condition.is_against(test.now, Votes::reported(0)));
    assert_eq!(test.wait(60_000).advance(WELL), None, "as long as they say so");
    test.others = PeerReports::of([Votes::reported(0), Votes::reported(1)]);
    assert_eq!(test.advance(WELL), Some(Shift::Reborn(ChangeReason::ActiveChecksRose)));
}

#[test]
fn two_nodes_without_checks_do_not_believe_each_other_for_ever() {
    let mut test = Test::new();
    let traffic = [Silent, BadForLong, Silent, Silent];
    assert_eq!(test.advance(traffic), Some(OUT));
    test.others = PeerReports::of([Votes::reported(2)]);
    let votes = Votes { passive: BadForLong, ..Votes::default() };
    assert!(test.condition.is_against(test.now, votes));
    test.wait(60_000);
    assert_eq!(test.advance(traffic), None, "the other one still says so");
    assert!(!test.condition.is_against(test.now, votes), "this one says it no more");
    test.others = PeerReports::of([Votes::reported(0)]);
    assert_eq!(test.advance(traffic), Some(Shift::Reborn(ChangeReason::BackOffOver)));
}
