use super::*;

fn headers(id: &str) -> Arc<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert("x-request-id", id.parse().unwrap());
    Arc::new(headers)
}

fn outcomes(ledger: &CallLedger) -> Vec<(String, CallOutcome)> {
    let records = ledger.records().into_iter();
    records.map(|record| (record.request_id.unwrap(), record.outcome)).collect()
}

#[test]
fn each_request_ends_once_and_as_told() {
    let ledger = Arc::new(CallLedger::new(10));
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|id| ledger.receive(&headers(id)));
    a.start();
    a.start();
    c.close(CallOutcome::Rejected);
    a.close(CallOutcome::Finished);
    drop(b);
    let expected = [
        ("a".to_owned(), CallOutcome::Finished),
        ("b".to_owned(), CallOutcome::Aborted),
        ("c".to_owned(), CallOutcome::Rejected),
        ("d".to_owned(), CallOutcome::InFlight),
    ];
    assert_eq!(outcomes(&ledger), expected);
    let counts = ledger.counts();
    assert_eq!((counts.received, counts.started), (4, 1));
    assert_eq!((counts.finished, counts.aborted, counts.rejected), (1, 1, 1));
    drop(d);
    assert_eq!(ledger.counts().aborted, 2);
}

#[test]
fn old_records_go_but_their_tickets_still_count() {
    let ledger = Arc::new(CallLedger::new(2));
    let tickets: Vec<Ticket> =
        ["a", "b", "c"].iter().map(|id| ledger.receive(&headers(id))).collect();
    for ticket in tickets {
        ticket.close(CallOutcome::Finished);
    }
    let expected =
        [("b".to_owned(), CallOutcome::Finished), ("c".to_owned(), CallOutcome::Finished)];
    assert_eq!(outcomes(&ledger), expected);
    assert_eq!(ledger.counts().finished, 3);
}

#[test]
fn credentials_are_noticed() {
    let ledger = Arc::new(CallLedger::new(2));
    drop(ledger.receive(&headers("a")));
    assert_eq!(ledger.counts().authorization_seen, 0);
    let mut with = HeaderMap::new();
    with.insert("authorization", "Bearer secret".parse().unwrap());
    drop(ledger.receive(&Arc::new(with)));
    assert_eq!(ledger.counts().authorization_seen, 1);
    assert!(ledger.last_headers().contains_key("authorization"));
}

#[test]
fn the_usage_of_a_request_is_kept_at_its_end() {
    let ledger = Arc::new(CallLedger::new(3));
    let usage = |prompt_tokens, completion_tokens| TokenUsage {
        prompt_tokens,
        completion_tokens,
        cached_tokens: 1,
    };
    let [whole, cut, early, refused] =
        ["whole", "cut", "early", "refused"].map(|id| ledger.receive(&headers(id)));
    for (ticket, completion) in [(&whole, 5), (&cut, 2), (&early, 3), (&refused, 0)] {
        ticket.note_usage(usage(10, 0));
        ticket.note_usage(usage(10, completion));
    }
    early.note_early_end();
    whole.close(CallOutcome::Finished);
    drop(cut);
    early.close(CallOutcome::Finished);
    refused.close(CallOutcome::Rejected);
    let report = ledger.usage();
    // The oldest record has left the list, and still counts.
    let records: Vec<_> = report
        .requests
        .iter()
        .map(|record| (record.outcome, record.is_complete, record.usage))
        .collect();
    let expected = [
        (CallOutcome::Aborted, false, usage(10, 2)),
        (CallOutcome::Finished, false, usage(10, 3)),
        (CallOutcome::Rejected, false, usage(10, 0)),
    ];
    assert_eq!(records, expected);
    let sums = |totals: UsageTotals| {
        (totals.requests, totals.prompt_tokens, totals.completion_tokens, totals.cached_tokens)
    };
    assert_eq!(sums(report.complete), (1, 10, 5, 1));
    assert_eq!(sums(report.incomplete), (2, 20, 5, 2));
}

#[test]
fn both_ids_of_a_client_are_kept() {
    let ledger = Arc::new(CallLedger::new(1));
    let mut both = HeaderMap::new();
    both.insert("x-request-id", "mine-0123456789abcdef".parse().unwrap());
    both.insert("x-client-request-id", "theirs".parse().unwrap());
    drop(ledger.receive(&Arc::new(both)));
    let record = ledger.records().remove(0);
    assert_eq!(record.request_id.as_deref(), Some("mine"));
    assert_eq!(record.client_request_id.as_deref(), Some("theirs"));
}
