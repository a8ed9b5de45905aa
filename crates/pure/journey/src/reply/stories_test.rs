use super::test_reply::{World, ms, rules, start};
use super::*;

use PieceKind::{Content, Last, NoContent};
use ReplyAction::{Break, Close, Complete, Continue, Finish, KeepAlive, Move, Proceed, Release};
use ReplyEvent as E;
use ReplyFault as F;
use ReplySource::{Region, Replica};

fn ended(world: &World) -> Option<ReplyEnd> {
    world.reply.ended()
}

#[test]
fn a_whole_stream_ends_once_and_keeps_its_connection() {
    let mut world = World::stream();
    world.token().token();
    assert_eq!(world.on(E::Piece(Last)), Proceed);
    assert_eq!(world.on(E::Ended(PartEnd::Whole)), Finish);
    assert_eq!(ended(&world), Some(ReplyEnd::Whole));
    for event in [E::Broke, E::Ended(PartEnd::Unfinished), E::Aborted, E::ClientGone] {
        assert_eq!(world.on(event), Proceed, "{event:?}");
    }
    assert_eq!(ended(&world), Some(ReplyEnd::Whole));
    assert_eq!(world.reply.wake_at(None), None);
}

#[test]
fn each_failure_of_the_source_is_continued_where_that_is_possible_and_an_error_elsewhere() {
    let dying = EngineState::Dying;
    for (event, fault) in [
        (E::Broke, F::Cut),
        (E::Aborted, F::Aborted),
        (E::Reported(dying), F::Reported(dying)),
        (E::Ended(PartEnd::Unfinished), F::Unfinished),
        (E::Ended(PartEnd::Aborted), F::Aborted),
    ] {
        for has_begun in [false, true] {
            let mut world = World::stream();
            if has_begun {
                world.token();
            }
            assert_eq!(world.on(event), Continue(fault), "{event:?}");
            assert!(world.reply.seeks() && !world.reply.reads());

            let mut alone = World::new(FailureForm::Events, Replica, false);
            if has_begun {
                alone.token();
            }
            let expected = match fault {
                F::Reported(_) => Release(fault),
                _ => Break(fault),
            };
            assert_eq!(alone.on(event), expected, "{event:?}");
            assert_eq!(ended(&alone), Some(ReplyEnd::Failed(fault)));
        }
    }
}

#[test]
fn only_streams_are_continued() {
    for form in [FailureForm::Call, FailureForm::Bytes] {
        let mut world = World::new(form, Replica, true);
        assert!(!world.reply.is_continuable());
        assert_eq!(world.on(E::Broke), Break(F::Cut), "{form:?}");
    }
}

#[test]
fn a_stream_that_became_unfit_is_not_continued() {
    let mut world = World::stream();
    world.token();
    world.reply.rule_out_continuation();
    assert_eq!(world.on(E::Broke), Break(F::Cut));
}

#[test]
fn a_continued_stream_goes_on_and_can_fail_again() {
    let mut world = World::stream();
    world.token();
    assert_eq!(world.on(E::Broke), Continue(F::Cut));
    assert_eq!(world.on(E::Piece(Content)), Proceed, "a piece that was under way changes nothing");
    assert!(world.reply.seeks());
    assert_eq!(world.on(E::Continued(Region)), Proceed);
    assert!(world.reply.reads() && world.reply.source() == Region);
    world.token();
    assert_eq!(world.on(E::Broke), Continue(F::Cut));
    assert_eq!(world.on(E::NotContinued(StreamEnd::Failed)), Break(F::Cut));
}

#[test]
fn the_time_limits_of_a_source_begin_with_it() {
    let mut world = World::stream();
    world.now += ms(5_000);
    world.on(E::Broke);
    world.on(E::Continued(Replica));
    world.on(E::Asked);
    assert_eq!(world.silence(ms(100_000)), (Continue(F::NotBegun), 15_000));

    let mut begun = World::stream();
    begun.token().silence(ms(3_000));
    begun.on(E::Broke);
    begun.on(E::Continued(Replica));
    begun.on(E::Asked);
    assert_eq!(begun.silence(ms(100_000)), (Continue(F::Stalled), 7_000));

    let mut region = World::new(FailureForm::Events, Region, true);
    region.state = SourceState::Disconnected;
    region.token().silence(ms(900));
    region.on(E::Broke);
    region.on(E::Continued(Region));
    // Seen first by the look after 250 ms.
    assert_eq!(region.silence(ms(100_000)), (Continue(F::Lost), 900 + 250 + 1_000));
}

#[test]
fn a_search_without_result_ends_with_the_fault_that_began_it() {
    let reported = F::Reported(EngineState::Serving);
    for (event, end, expected) in [
        (E::Broke, StreamEnd::Complete, Complete),
        (E::Broke, StreamEnd::Budget, Break(F::Cut)),
        (E::Broke, StreamEnd::Late, Break(F::Cut)),
        (E::Reported(EngineState::Dying), StreamEnd::Deaths, Break(F::GivenUp)),
        (E::Reported(EngineState::Serving), StreamEnd::Count, Release(reported)),
        // By then the replica's own error is about a target that is long gone.
        (E::Reported(EngineState::Serving), StreamEnd::Failed, Break(reported)),
        (E::Reported(EngineState::Serving), StreamEnd::Complete, Complete),
    ] {
        let mut world = World::stream();
        world.token().on(event);
        assert_eq!(world.on(E::NotContinued(end)), expected, "{event:?} {end:?}");
        let is_whole = end == StreamEnd::Complete;
        assert_eq!(ended(&world) == Some(ReplyEnd::Whole), is_whole);
    }
}

#[test]
fn after_its_last_event_a_reply_is_whole_whatever_happens() {
    for event in [E::Broke, E::Aborted, E::Reported(EngineState::Dying)] {
        let mut world = World::stream();
        world.token().on(E::Piece(Last));
        assert_eq!(world.on(event), Close, "{event:?}");
        assert_eq!(ended(&world), Some(ReplyEnd::Whole));
    }
    let mut world = World::stream();
    world.token().on(E::Piece(Last));
    world.state = SourceState::Down;
    assert_eq!(world.silence(ms(100_000)), (Close, 4_000), "the connection is not waited for");
    assert_eq!(ended(&world), Some(ReplyEnd::Whole));

    let mut late = World::stream();
    for _ in 0..19 {
        late.token().silence(ms(3_000));
    }
    late.token().silence(ms(1_000));
    late.on(E::Piece(Last));
    assert_eq!(late.silence(ms(100_000)), (Close, 60_000), "not beyond the deadline");
}

#[test]
fn an_error_that_was_passed_on_is_the_end_and_no_success() {
    let mut world = World::new(FailureForm::Bytes, Replica, false);
    assert_eq!(world.on(E::Ended(PartEnd::Failed(EngineState::Serving))), Finish);
    assert_eq!(ended(&world).map(ReplyEnd::end), Some(End::Cut));
}

#[test]
fn silence_counts_from_the_request_before_the_first_event_and_from_the_last_piece_after_it() {
    let alone = || World::new(FailureForm::Events, Replica, false);
    assert_eq!(alone().silence(ms(100_000)), (Break(F::NotBegun), 10_000));

    let mut commented = alone();
    commented.silence(ms(9_000));
    commented.on(E::Piece(NoContent));
    assert_eq!(commented.silence(ms(100_000)), (Break(F::NotBegun), 10_000));

    let mut begun = alone();
    begun.silence(ms(9_000));
    assert_eq!(begun.token().silence(ms(100_000)), (Break(F::Stalled), 13_000));

    let mut alive = alone();
    alive.token().silence(ms(3_000));
    alive.on(E::Piece(NoContent));
    assert_eq!(
        alive.silence(ms(100_000)),
        (Break(F::Stalled), 7_000),
        "a comment is a sign of life"
    );
}

#[test]
fn silence_does_not_count_while_the_client_or_its_half_is_waited_for() {
    let mut world = World::stream();
    world.token();
    world.on(E::Piece(Content));
    world.on(E::Passed);
    // The client takes nothing for 3.9 s; the source was not asked during that time.
    world.now += ms(3_900);
    assert_eq!(world.silence(ms(100)), (Proceed, 4_000));
    world.on(E::Asked);
    assert_eq!(world.silence(ms(100_000)), (Continue(F::Stalled), 8_000));

    let mut call = World::new(FailureForm::Call, Replica, false);
    call.token();
    call.client_sent = Some(call.start + ms(3_000));
    assert_eq!(call.silence(ms(100_000)), (Break(F::Stalled), 7_000));
}

#[test]
fn while_the_client_is_behind_only_the_deadline_counts() {
    let mut world = World::stream();
    world.token().on(E::ClientBehind);
    world.state = SourceState::Down;
    assert_eq!(world.silence(ms(50_000)), (Proceed, 50_000));
    world.on(E::Passed);
    world.on(E::Asked);
    assert_eq!(world.silence(ms(5_000)), (Proceed, 55_000), "it is still behind");
    world.state = SourceState::Well;
    world.on(E::ClientCaughtUp);
    assert_eq!(world.silence(ms(1_000)), (Proceed, 56_000));

    let mut late = World::stream();
    late.token().on(E::ClientBehind);
    assert_eq!(late.silence(ms(100_000)), (Break(F::DeadlinePassed), 60_000));
}

#[test]
fn a_deadline_ends_a_reply_and_nothing_continues_it() {
    let mut world = World::stream();
    for _ in 0..20 {
        world.silence(ms(3_000));
        if ended(&world).is_none() {
            world.token();
        }
    }
    assert_eq!(world.actions, [Break(F::DeadlinePassed)]);
    assert_eq!(ended(&world).map(ReplyEnd::end), Some(End::DeadlinePassed));
}

#[test]
fn a_replica_that_is_down_is_noticed_by_the_next_look() {
    let mut world = World::stream();
    world.token().silence(ms(1_100));
    world.state = SourceState::Down;
    assert_eq!(world.silence(ms(100_000)), (Continue(F::Down), 1_250));
}

#[test]
fn a_region_out_of_reach_is_lost_after_a_second_and_shorter_cuts_are_survived() {
    for has_begun in [false, true] {
        let mut world = World::new(FailureForm::Events, Region, true);
        if has_begun {
            world.token();
        }
        world.silence(ms(500));
        world.state = SourceState::OutOfReach;
        assert_eq!(world.silence(ms(100_000)), (Continue(F::Lost), 1_000));

        let mut short = World::new(FailureForm::Events, Region, true);
        short.silence(ms(500));
        short.state = SourceState::OutOfReach;
        short.silence(ms(450));
        short.token();
        short.state = SourceState::Well;
        assert_eq!(short.silence(ms(3_000)), (Proceed, 3_950));
    }
    // The last piece came between two looks.
    let mut world = World::new(FailureForm::Events, Region, true);
    world.silence(ms(600));
    world.token();
    world.state = SourceState::OutOfReach;
    assert_eq!(world.silence(ms(100_000)), (Continue(F::Lost), 1_600));
    // Without a continuation the client learns of it as fast.
    let mut alone = World::new(FailureForm::Bytes, Region, false);
    alone.state = SourceState::OutOfReach;
    assert_eq!(alone.silence(ms(100_000)), (Break(F::Lost), 1_000));
}

#[test]
fn a_node_without_a_connection_has_a_second_to_get_a_new_one() {
    let mut world = World::new(FailureForm::Events, Region, true);
    world.token().silence(ms(3_000));
    world.state = SourceState::Disconnected;
    world.silence(ms(500));
    world.state = SourceState::Well;
    assert_eq!(world.silence(ms(250)), (Proceed, 3_750), "certificates were renewed");
    world.token();
    world.state = SourceState::Disconnected;
    assert_eq!(world.silence(ms(10_000)), (Continue(F::Lost), 5_000));
}

#[test]
fn a_stream_leaves_a_source_that_drains_and_stays_where_no_other_place_has_room() {
    let mut world = World::stream();
    world.token();
    world.state = SourceState::Leaving;
    assert_eq!(world.silence(ms(100_000)), (Move, 250));
    assert!(world.reply.seeks() && !world.reply.reads());
    assert_eq!(world.on(E::NotContinued(StreamEnd::Late)), Proceed);
    assert!(world.reply.reads());
    assert_eq!(world.silence(ms(100_000)), (Move, 1_250), "not before a second has passed");
    assert_eq!(world.on(E::Continued(Replica)), Proceed);
    world.state = SourceState::Well;
    assert_eq!(world.token().silence(ms(3_000)), (Proceed, 4_250));
}

#[test]
fn a_stream_that_cannot_be_continued_waits_for_a_source_that_is_merely_silent() {
    let mut world = World::new(FailureForm::Events, Replica, false);
    world.token();
    world.state = SourceState::Silent;
    let silent = world.silence(ms(3_000));
    assert_eq!(silent, (Proceed, 3_000));
    world.state = SourceState::Well;
    assert_eq!(world.token().silence(ms(3_000)), (Proceed, 6_000), "it went on");
}

#[test]
fn a_stream_that_cannot_be_continued_finishes_at_a_source_that_drains() {
    let mut world = World::new(FailureForm::Events, Replica, false);
    world.token();
    world.state = SourceState::Leaving;
    assert_eq!(world.silence(ms(3_000)), (Proceed, 3_000));
}

#[test]
fn a_move_does_not_count_as_silence_of_the_source() {
    for (has_begun, expected) in [(true, (F::Stalled, 6_000)), (false, (F::NotBegun, 12_000))] {
        let mut world = World::stream();
        if has_begun {
            world.token();
        }
        world.state = SourceState::Leaving;
        assert_eq!(world.silence(ms(1_000)), (Move, 250));
        world.now += ms(2_000);
        world.on(E::NotContinued(StreamEnd::Late));
        world.state = SourceState::Well;
        let (fault, at) = expected;
        assert_eq!(world.silence(ms(100_000)), (Continue(fault), at), "2 s were no silence");
    }
}

#[test]
fn pieces_count_while_the_client_is_behind() {
    let behind = || {
        let begin = start();
        let rules = ReplyRules { keep_alive: Some(ms(700)), ..rules(FailureForm::Events, begin) };
        let mut world = World::with(rules, Replica, true, begin);
        world.on(E::ClientBehind);
        world.now += ms(500);
        world
    };
    let mut begun = behind();
    begun.on(E::Piece(Content));
    begun.on(E::Passed);
    begun.on(E::ClientCaughtUp);
    begun.on(E::Asked);
    assert_eq!(begun.silence(ms(5_000)), (KeepAlive, 1_200), "since the piece was passed on");
    while begun.silence(ms(100_000)).0 == KeepAlive {}
    assert_eq!((begun.actions.last(), begun.passed_ms()), (Some(&Continue(F::Stalled)), 4_500));

    let mut done = behind();
    done.on(E::Piece(Last));
    assert_eq!(done.on(E::Broke), Close);
}

#[test]
fn keep_alives_go_to_clients_that_wait_for_a_silent_stream() {
    let begin = start();
    let with = |form| ReplyRules { keep_alive: Some(ms(700)), ..rules(form, begin) };
    let mut world = World::with(with(FailureForm::Events), Replica, true, begin);
    assert_eq!(world.silence(ms(5_000)), (KeepAlive, 700), "before the first token as well");
    assert_eq!(world.silence(ms(5_000)), (KeepAlive, 1_400));
    world.silence(ms(400));
    assert_eq!(world.token().silence(ms(5_000)), (KeepAlive, 2_500));
    world.on(E::Broke);
    assert_eq!(world.silence(ms(5_000)), (KeepAlive, 3_200), "while another target is sought");
    world.on(E::Continued(Replica));
    world.on(E::ClientBehind);
    assert_eq!(world.silence(ms(5_000)), (Proceed, 8_200), "a client that is behind needs none");

    for form in [FailureForm::Bytes, FailureForm::Call] {
        let mut world = World::with(with(form), Replica, false, begin);
        assert_eq!(world.silence(ms(5_000)), (Proceed, 5_000), "{form:?}");
    }
}

#[test]
fn a_keep_alive_is_no_sign_of_life_of_the_source() {
    let begin = start();
    let rules = ReplyRules { keep_alive: Some(ms(700)), ..rules(FailureForm::Events, begin) };
    let mut world = World::with(rules, Replica, false, begin);
    world.token();
    while world.silence(ms(100_000)).0 == KeepAlive {}
    assert_eq!((world.actions.last(), world.passed_ms()), (Some(&Break(F::Stalled)), 4_000));
}

#[test]
fn a_client_that_leaves_ends_everything() {
    for event in [None, Some(E::Broke), Some(E::ClientBehind), Some(E::Piece(Last))] {
        let mut world = World::stream();
        world.token();
        event.map(|event| world.on(event));
        assert_eq!(world.on(E::ClientGone), Proceed);
        assert_eq!(ended(&world), Some(ReplyEnd::ClientGone));
        assert_eq!(world.on(E::Continued(Replica)), Proceed);
        assert!(!world.reply.reads() && !world.reply.seeks());
    }
}

#[test]
fn engines_die_by_cuts_and_by_their_own_word_alone() {
    let deaths: Vec<F> = F::ALL.into_iter().filter(|fault| fault.is_death(Replica)).collect();
    assert_eq!(deaths, [F::Cut, F::Reported(EngineState::Dying)]);
    assert!(F::ALL.into_iter().all(|fault| !fault.is_death(Region)));
}

#[test]
fn a_deadline_and_a_request_that_was_given_up_leave_nothing_to_repair() {
    let lost: Vec<F> = F::ALL.into_iter().filter(|fault| !fault.is_repairable()).collect();
    assert_eq!(lost, [F::GivenUp, F::DeadlinePassed]);
    let mut world = World::stream();
    world.token();
    assert_eq!(world.on(E::GivenUp), Release(F::GivenUp), "the other node's own event says why");
    for fault in F::ALL {
        assert_ne!(fault.end(), End::Complete, "{fault:?}");
    }
}
