use proptest::prelude::*;

use super::*;

const REQUEST: RequestTokens =
    RequestTokens { prompt: 100, prompt_max: 4_500, completion_max: 60, reply: ReplyKind::Text };

const COMPLETE: Ending = Ending { end: End::Complete, status: 200, was_sent: true };

fn ending(end: End, status: u16, was_sent: bool) -> Ending {
    Ending { end, status, was_sent }
}

fn counts(prompt: u64, completion: u64, cached: u64) -> TokenCounts {
    TokenCounts { prompt, completion, cached }
}

fn reported(prompt: u64, completion: u64, cached: u64) -> ReplyTokens {
    let reported = Some(counts(prompt, completion, cached));
    ReplyTokens { reported, bytes: 400, ..ReplyTokens::default() }
}

fn events(events: u64) -> ReplyTokens {
    ReplyTokens { events, events_since_report: events, ..ReplyTokens::default() }
}

fn bytes(bytes: u64) -> ReplyTokens {
    ReplyTokens { bytes, ..ReplyTokens::default() }
}

/// Checks the tokens of a bill, their estimated part, and those that count for limits.
#[track_caller]
fn check(
    bill: Bill,
    tokens: TokenCounts,
    estimated: Option<(u64, EstimateReason)>,
    limited: Option<u64>,
) {
    let estimated = estimated.map(|(tokens, reason)| TokenEstimate { tokens, reason });
    assert_eq!((bill.tokens, bill.estimate, bill.limited), (tokens, estimated, limited));
}

use EstimateReason::{EarlyEnd, Implausible, Unreported};

#[test]
fn a_plausible_report_counts_as_it_is_at_every_end() {
    for end in [
        End::Complete,
        End::Cut,
        End::Stalled,
        End::DeadlinePassed,
        End::CancelledInReply,
        End::Answered,
    ] {
        let bill = bill(&REQUEST, &reported(90, 7, 64), ending(end, 200, true));
        check(bill, counts(90, 7, 64), None, Some(97));
    }
    let failed = bill(&REQUEST, &reported(90, 7, 64), ending(End::Complete, 500, true));
    check(failed, counts(90, 7, 64), None, Some(97));
}

#[test]
fn without_a_report_the_prompt_and_the_events_or_bytes_are_billed() {
    for (reply, completion) in [(events(12), 12), (bytes(44), 11), (bytes(45), 12)] {
        // The length is all that is known of protocols that report no usage.
        for kind in [ReplyKind::Text, ReplyKind::Opaque] {
            let bill = bill(&RequestTokens { reply: kind, ..REQUEST }, &reply, COMPLETE);
            let estimated = Some((100 + completion, Unreported));
            let is_known = reply.events > 0 || kind == ReplyKind::Opaque;
            let limited = is_known.then_some(100 + completion);
            check(bill, counts(100, completion, 0), estimated, limited);
        }
    }
    let too_many = bill(&REQUEST, &bytes(400_000), COMPLETE);
    check(too_many, counts(100, 60, 0), Some((160, Unreported)), None);
}

#[test]
fn a_stream_that_ends_early_bills_its_prompt_and_its_events() {
    for end in [End::Cut, End::Stalled, End::DeadlinePassed, End::CancelledInReply] {
        let bill = bill(&REQUEST, &events(4), ending(end, 200, true));
        check(bill, counts(100, 4, 0), Some((104, EarlyEnd)), Some(104));
    }
}

#[test]
fn events_after_the_last_report_count_only_where_no_later_report_came() {
    let reported = Some(counts(90, 1, 0));
    let stream = ReplyTokens { reported, events: 9, events_since_report: 6, bytes: 0 };
    let cut = bill(&REQUEST, &stream, ending(End::Cut, 200, true));
    check(cut, counts(90, 7, 0), Some((6, EarlyEnd)), Some(97));
    check(bill(&REQUEST, &stream, COMPLETE), counts(90, 1, 0), None, Some(91));
    let throughout = ReplyTokens { events_since_report: 0, ..stream };
    let cut = bill(&REQUEST, &throughout, ending(End::Cut, 200, true));
    check(cut, counts(90, 1, 0), None, Some(91));
}

#[test]
fn only_what_no_replica_worked_on_and_what_failed_is_free() {
    for end in [End::Answered, End::CancelledBeforeReply, End::CancelledInReply, End::Complete] {
        let bill = bill(&REQUEST, &ReplyTokens::default(), ending(end, 499, false));
        check(bill, counts(0, 0, 0), None, Some(0));
    }
    for end in [End::Complete, End::Cut, End::CancelledInReply] {
        for reply in [bytes(400), events(1)] {
            let error = bill(&REQUEST, &reply, ending(end, 500, true));
            check(error, counts(0, 0, 0), None, Some(0));
        }
    }
}

#[test]
fn a_request_that_is_given_up_bills_its_prompt_and_keeps_its_charge() {
    for (end, status) in
        [(End::CancelledBeforeReply, 499), (End::Answered, 504), (End::CancelledInReply, 200)]
    {
        let bill = bill(&REQUEST, &ReplyTokens::default(), ending(end, status, true));
        check(bill, counts(100, 0, 0), Some((100, EarlyEnd)), None);
    }
    // No client is billed for the gateway's own 502, but a replica may have been at work.
    let failed = bill(&REQUEST, &ReplyTokens::default(), ending(End::Answered, 502, true));
    check(failed, counts(0, 0, 0), None, None);
}

#[test]
fn a_report_that_can_not_be_true_is_replaced_by_the_estimate() {
    let most = bill(&REQUEST, &reported(4_500, 60, 0), COMPLETE);
    check(most, counts(4_500, 60, 0), None, Some(4_560));
    let prompt = bill(&REQUEST, &reported(4_501, 7, 4_000), COMPLETE);
    check(prompt, counts(100, 7, 0), Some((100, Implausible)), Some(107));
    let completion = bill(&REQUEST, &reported(90, 61, 8), COMPLETE);
    check(completion, counts(90, 60, 8), Some((60, Implausible)), None);
    let both = bill(&REQUEST, &reported(u64::MAX, u64::MAX, u64::MAX), COMPLETE);
    check(both, counts(100, 60, 0), Some((160, Implausible)), None);
    let stream = ReplyTokens { events: 9, ..reported(u64::MAX, u64::MAX, 0) };
    let stream = bill(&REQUEST, &stream, ending(End::Cut, 200, true));
    check(stream, counts(100, 9, 0), Some((109, Implausible)), Some(109));
    let cached = bill(&REQUEST, &reported(90, 7, 91), COMPLETE);
    check(cached, counts(90, 7, 90), None, Some(97));
    let believed = [(4_500, 60), (4_501, 7), (90, 61)]
        .map(|(prompt, completion)| REQUEST.can_have_used(counts(prompt, completion, 0)));
    assert_eq!(believed, [true, false, false]);
}

#[test]
fn a_report_without_a_prompt_is_completed_by_the_estimate() {
    let bill = bill(&REQUEST, &reported(0, 7, 0), COMPLETE);
    check(bill, counts(100, 7, 0), Some((100, Unreported)), Some(107));
}

#[test]
fn each_kind_of_reply_is_estimated_in_its_own_way() {
    let of =
        |reply: ReplyKind, tokens| bill(&RequestTokens { reply, ..REQUEST }, &tokens, COMPLETE);
    let scores = of(ReplyKind::Scores, bytes(40_000));
    check(scores, counts(100, 0, 0), Some((100, Unreported)), Some(100));
    check(of(ReplyKind::Scores, reported(90, 0, 0)), counts(90, 0, 0), None, Some(90));
    let sound = of(ReplyKind::Media, bytes(640));
    check(sound, counts(100, 10, 0), Some((110, Unreported)), None);
    check(of(ReplyKind::Count, reported(90, 9, 0)), counts(0, 0, 0), None, Some(100));
    // Limits charge for tokens that are counted, but not for a request that no replica had.
    let count = RequestTokens { reply: ReplyKind::Count, ..REQUEST };
    let refused = bill(&count, &bytes(9), ending(End::Complete, 503, false));
    assert_eq!(refused.limited, Some(0));
}

#[test]
fn what_is_known_to_be_counted_teaches_the_usual_length() {
    assert!(bill(&REQUEST, &reported(90, 7, 0), COMPLETE).is_counted);
    assert!(bill(&REQUEST, &events(7), COMPLETE).is_counted);
    assert!(!bill(&REQUEST, &bytes(40), COMPLETE).is_counted);
    assert!(!bill(&REQUEST, &reported(90, 61, 0), COMPLETE).is_counted);
}

#[test]
fn an_empty_reply_may_have_used_all_of_its_charge() {
    let empty = bill(&REQUEST, &ReplyTokens::default(), COMPLETE);
    check(empty, counts(100, 0, 0), Some((100, Unreported)), None);
}

#[test]
fn a_request_without_tokens_needs_no_estimate() {
    let none = RequestTokens::default();
    let bill = bill(&none, &bytes(400), COMPLETE);
    assert_eq!((bill.estimate, bill.limited), (None, Some(0)));
}

fn any_end() -> impl Strategy<Value = End> {
    prop::sample::select(vec![
        End::Complete,
        End::Answered,
        End::CancelledBeforeReply,
        End::CancelledInReply,
        End::Cut,
        End::Stalled,
        End::DeadlinePassed,
    ])
}

fn any_reply() -> impl Strategy<Value = ReplyTokens> {
    let number = || prop_oneof![0_u64..5_000, any::<u64>()];
    let reported = prop::option::of((number(), number(), number()));
    (reported, number(), number(), number()).prop_map(|(reported, events, since, bytes)| {
        let reported =
            reported.map(|(prompt, completion, cached)| counts(prompt, completion, cached));
        ReplyTokens { reported, events, events_since_report: since.min(events), bytes }
    })
}

proptest! {
    #[test]
    fn no_bill_exceeds_what_can_be_true(
        reply in any_reply(),
        end in any_end(),
        status in prop::sample::select(vec![200_u16, 404, 499, 502, 504]),
        was_sent in any::<bool>(),
    ) {
        let bill = bill(&REQUEST, &reply, Ending { end, status, was_sent });
        prop_assert!(bill.tokens.prompt <= REQUEST.prompt_max);
        prop_assert!(bill.tokens.completion <= REQUEST.completion_max);
        prop_assert!(bill.tokens.cached <= bill.tokens.prompt);
        let sum = bill.tokens.prompt + bill.tokens.completion;
        let estimated = bill.estimate.map_or(0, |estimate| estimate.tokens);
        prop_assert!(estimated <= sum);
        if let Some(limited) = bill.limited {
            prop_assert_eq!(limited, sum, "limits and bills agree");
        }
        if !was_sent && reply.reported.is_none() {
            prop_assert_eq!(sum, 0);
        }
    }
}
