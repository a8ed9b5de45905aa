//! All inputs in all states.

use super::test_reply::{World, ms};
use super::*;

use ReplyAction::{Break, Close, Complete, Continue, Finish, Move, Proceed, Release};
use ReplyEvent as E;
use ReplyFault as F;
use ReplyPoint::{Behind, Continuing, Ending, Head, Moving, Over, Streaming};
use ReplySource::{Region, Replica};

/// State of the machine without its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyPoint {
    Head,
    Streaming,
    Behind,
    Ending,
    Moving,
    Continuing,
    Over,
}

const ALL: [ReplyPoint; 7] = [Head, Streaming, Behind, Ending, Moving, Continuing, Over];
/// States in which the source is read.
const SERVED: [ReplyPoint; 3] = [Head, Streaming, Behind];

/// States, the action that an input leads to there, and the state after it.
type Row<'r> = (&'r [ReplyPoint], ReplyAction, ReplyPoint);

fn place(reply: &Reply) -> ReplyPoint {
    match reply.state {
        ReplyState::Serving(Progress::Head, _) => Head,
        ReplyState::Serving(Progress::Streaming, _) => Streaming,
        ReplyState::Ending => Ending,
        ReplyState::Behind(_) => Behind,
        ReplyState::Moving { .. } => Moving,
        ReplyState::Continuing(..) => Continuing,
        ReplyState::Over(_) => Over,
    }
}

/// Brings a stream of this source into a state.
fn world_at(place: ReplyPoint, source: ReplySource) -> World {
    let mut world = World::new(FailureForm::Events, source, true);
    if place != Head {
        world.token();
    }
    match place {
        Head | Streaming => {}
        Behind => drop(world.on(E::ClientBehind)),
        Ending => drop(world.on(E::Piece(PieceKind::Last))),
        Moving => {
            world.state = SourceState::Leaving;
            world.silence(SOURCE_LOOK);
            world.state = SourceState::Well;
        }
        Continuing => drop(world.on(E::Broke)),
        Over => drop(world.on(E::Ended(PartEnd::Whole))),
    }
    assert_eq!(self::place(&world.reply), place);
    world
}

/// Checks what `act` leads to in all states: the rows, and nothing elsewhere.
#[track_caller]
fn check(what: &str, rows: &[Row<'_>], act: impl Fn(ReplyPoint) -> (ReplyAction, Reply)) {
    for from in ALL {
        let row = rows.iter().find(|(places, ..)| places.contains(&from));
        let expected = row.map_or((Proceed, from), |(_, action, to)| (*action, *to));
        let (action, reply) = act(from);
        assert_eq!((action, place(&reply)), expected, "{what} in {from:?}");
    }
}

#[track_caller]
fn check_event(event: ReplyEvent, rows: &[Row<'_>]) {
    check(&format!("{event:?}"), rows, |from| {
        let mut world = world_at(from, Replica);
        (world.on(event), world.reply)
    });
}

#[test]
fn pieces_come_and_go() {
    check_event(E::Piece(PieceKind::NoContent), &[]);
    check_event(E::Piece(PieceKind::Content), &[(&[Head], Proceed, Streaming)]);
    check_event(E::Piece(PieceKind::Last), &[(&SERVED, Proceed, Ending)]);
    check_event(E::Passed, &[]);
    check_event(E::Asked, &[]);
}

#[test]
fn clients_fall_behind_and_leave() {
    check_event(E::ClientBehind, &[(&[Head, Streaming], Proceed, Behind)]);
    check_event(E::ClientCaughtUp, &[(&[Behind], Proceed, Streaming)]);
    check_event(E::ClientGone, &[(&ALL, Proceed, Over)]);
}

#[test]
fn sources_end_and_fail() {
    let dying = EngineState::Dying;
    let whole: Row<'_> = (&[Ending], Finish, Over);
    let closed: Row<'_> = (&[Ending], Close, Over);
    for (event, served) in [
        (E::Ended(PartEnd::Whole), (Finish, Over)),
        (E::Ended(PartEnd::Failed(dying)), (Finish, Over)),
        (E::Ended(PartEnd::Unfinished), (Continue(F::Unfinished), Continuing)),
        (E::Ended(PartEnd::Aborted), (Continue(F::Aborted), Continuing)),
    ] {
        check_event(event, &[(&SERVED, served.0, served.1), whole]);
    }
    for (event, served) in [
        (E::Broke, (Continue(F::Cut), Continuing)),
        (E::Aborted, (Continue(F::Aborted), Continuing)),
        (E::Reported(dying), (Continue(F::Reported(dying)), Continuing)),
        (E::GivenUp, (Release(F::GivenUp), Over)),
    ] {
        check_event(event, &[(&SERVED, served.0, served.1), closed]);
    }
}

#[test]
fn searches_end() {
    for source in [Replica, Region] {
        check_event(E::Continued(source), &[(&[Moving, Continuing], Proceed, Streaming)]);
    }
    for (end, action) in [
        (StreamEnd::Complete, Complete),
        (StreamEnd::Deaths, Break(F::GivenUp)),
        (StreamEnd::Late, Break(F::Cut)),
        (StreamEnd::Count, Break(F::Cut)),
        (StreamEnd::NoTargetLeft, Break(F::Cut)),
    ] {
        // A source that drains still serves.
        let stays = (&[Moving][..], Proceed, Streaming);
        check_event(E::NotContinued(end), &[stays, (&[Continuing], action, Over)]);
    }
}

/// Checks what a look shows after so many milliseconds in which the source was in this state.
#[track_caller]
fn check_look(source: ReplySource, state: SourceState, after_ms: u64, rows: &[Row<'_>]) {
    check(&format!("{source:?} {state:?} after {after_ms} ms"), rows, |from| {
        let mut world = world_at(from, source);
        world.state = state;
        let (action, _) = world.silence(ms(after_ms));
        (action, world.reply)
    });
}

#[test]
fn looks_at_the_source_decide_only_while_it_is_waited_for() {
    let waited = &[Head, Streaming][..];
    check_look(Replica, SourceState::Well, 1_500, &[]);
    check_look(Replica, SourceState::Down, 250, &[(waited, Continue(F::Down), Continuing)]);
    check_look(Replica, SourceState::Silent, 250, &[(waited, Continue(F::Down), Continuing)]);
    check_look(Replica, SourceState::Leaving, 250, &[(waited, Move, Moving)]);
    let lost = [(waited, Continue(F::Lost), Continuing)];
    check_look(Region, SourceState::OutOfReach, 999, &[]);
    check_look(Region, SourceState::OutOfReach, 1_000, &lost);
    check_look(Region, SourceState::Disconnected, 1_249, &[]);
    check_look(Region, SourceState::Disconnected, 1_250, &lost);
}

#[test]
fn time_limits_end_what_is_waited_for() {
    check_look(
        Replica,
        SourceState::Well,
        4_000,
        &[(&[Streaming], Continue(F::Stalled), Continuing), (&[Ending], Close, Over)],
    );
    check_look(
        Replica,
        SourceState::Well,
        60_000,
        &[
            (&[Head], Continue(F::NotBegun), Continuing),
            (&[Streaming], Continue(F::Stalled), Continuing),
            (&[Behind], Break(F::DeadlinePassed), Over),
            (&[Ending], Close, Over),
        ],
    );
}
