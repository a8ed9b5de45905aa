//! Metrics of the arms of splits, so that arms can be compared.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use spillway_types::{ARM_ERRORS, Outcome, SplitArm};

use crate::catalog::requests;
use crate::register::{Labels, metric, registered};
use crate::route_model_metrics::{Histograms, seconds};

/// Value of the label `status` of a request that another model served.
const FALLBACK: &str = "fallback";
/// Values of the label `kind` of tokens.
const TOKEN_KINDS: [&str; 3] = ["prompt", "completion", "cached"];

registered! {
    /// Metrics of all arms. The config and the cluster's records bound their number.
    #[derive(Debug)]
    pub(crate) struct ArmMetrics {
        requests: Family<Labels, Counter> = metric(requests::SPLIT_REQUESTS),
        errors: Family<Labels, Counter> = metric(requests::SPLIT_ERRORS),
        tokens: Family<Labels, Counter> = metric(requests::SPLIT_TOKENS),
        first_token: Histograms = seconds(requests::SPLIT_FIRST_TOKEN),
        reply: Histograms = seconds(requests::SPLIT_REPLY),
        /// Arms that had a request, so that no label is built again for the next one.
        arms: Mutex<BTreeMap<Arc<SplitArm>, OneArm>>,
    }
}

/// Metrics of one arm, its counters of requests aside.
#[derive(Debug)]
struct OneArm {
    /// In the order of [`ARM_ERRORS`], from the first request on: a counter that appears with its
    /// first error has no increase that an alert could see.
    errors: [Counter; ARM_ERRORS.len()],
    /// In the order of [`TOKEN_KINDS`].
    tokens: [Counter; TOKEN_KINDS.len()],
    first_token: Histogram,
    reply: Histogram,
}

impl ArmMetrics {
    /// Counts a finished request, if its client asked for a split.
    pub(crate) fn record(&self, outcome: &Outcome) {
        let Some(arm) = &outcome.arm else { return };
        let status = match outcome.fallback_for {
            Some(_) => FALLBACK.to_owned(),
            None => format!("{}xx", outcome.status / 100),
        };
        self.requests.get_or_create(&labels(arm, "status", status)).inc();
        let mut arms = self.arms.lock().unwrap_or_else(PoisonError::into_inner);
        let one = arms.entry(Arc::clone(arm)).or_insert_with(|| self.one(arm));
        if let Some(error) = outcome.arm_error()
            && let Some(index) = ARM_ERRORS.iter().position(|known| *known == error)
        {
            one.errors[index].inc();
        }
        // The rest is about another model's reply.
        if outcome.fallback_for.is_some() {
            return;
        }
        let counts = [outcome.tokens.prompt, outcome.tokens.completion, outcome.tokens.cached];
        for (counter, count) in one.tokens.iter().zip(counts) {
            counter.inc_by(count);
        }
        if let Some(first_token) = outcome.first_token() {
            one.first_token.observe(first_token.as_secs_f64());
        }
        if let Some(reply) = outcome.complete_reply() {
            one.reply.observe(reply.as_secs_f64());
        }
    }

    fn one(&self, arm: &SplitArm) -> OneArm {
        let of = |family: &Family<Labels, Counter>, label, value: &str| {
            family.get_or_create_owned(&labels(arm, label, value.to_owned()))
        };
        let own = names(arm);
        OneArm {
            errors: ARM_ERRORS.map(|reason| of(&self.errors, "reason", reason)),
            tokens: TOKEN_KINDS.map(|kind| of(&self.tokens, "kind", kind)),
            first_token: self.first_token.get_or_create_owned(&own),
            reply: self.reply.get_or_create_owned(&own),
        }
    }
}

fn names(arm: &SplitArm) -> Labels {
    vec![("split", arm.split.to_string()), ("arm", arm.arm.to_string())]
}

fn labels(arm: &SplitArm, label: &'static str, value: String) -> Labels {
    let mut labels = names(arm);
    labels.push((label, value));
    labels
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spillway_types::{End, ModelName, Shed, TokenCounts};
    use spillway_usage::Money;

    use super::*;
    use crate::test_page::Page;
    use crate::{Live, Metrics};

    fn outcome(is_stream: bool) -> Outcome {
        Outcome {
            model: Some(ModelName::from("new")),
            arm: Some(Arc::new(SplitArm { split: "chat".into(), arm: "canary".into() })),
            status: 200,
            end: End::Complete,
            duration: Duration::from_millis(20),
            is_stream,
            first_byte: Some(Duration::from_millis(5)),
            tokens: TokenCounts { prompt: 7, completion: 2, cached: 3 },
            ..Outcome::begun()
        }
    }

    #[track_caller]
    fn check(outcomes: &[Outcome], expected: &[&str]) {
        let metrics = Metrics::new(Vec::new());
        outcomes.iter().for_each(|outcome| metrics.record(outcome, Money::ZERO));
        let text = metrics.scrape(&Live::default());
        let told = text.lines().filter(|line| line.starts_with("spillway_split_"));
        let told = told.filter(|line| !line.contains("_bucket") && !line.contains("_sum"));
        let is_told = |line: &&str| !line.ends_with(" 0");
        let mut told: Vec<String> = told
            .filter(is_told)
            .map(|line| {
                line.replace(r#"split="chat",arm="canary""#, "").replace("spillway_split_", "")
            })
            .collect();
        told.sort();
        assert_eq!(told, expected);
    }

    #[test]
    fn an_arm_has_latency_and_tokens_of_its_own() {
        check(
            &[outcome(true), outcome(false)],
            &[
                "reply_seconds_count{} 2",
                "requests_total{,status=\"2xx\"} 2",
                "time_to_first_token_seconds_count{} 1",
                "tokens_total{,kind=\"cached\"} 6",
                "tokens_total{,kind=\"completion\"} 4",
                "tokens_total{,kind=\"prompt\"} 14",
            ],
        );
    }

    #[test]
    fn each_arm_has_its_own_counters_and_a_request_without_an_arm_none() {
        let of_arm = |arm: &str| Outcome {
            arm: Some(Arc::new(SplitArm { split: "chat".into(), arm: arm.into() })),
            ..outcome(true)
        };
        let metrics = Metrics::new(Vec::new());
        let none = Outcome { arm: None, ..outcome(true) };
        for outcome in [of_arm("a"), of_arm("b"), of_arm("a"), none] {
            metrics.record(&outcome, Money::ZERO);
        }
        let page = Page::of(&metrics, &Live::default());
        let requests = |arm| page.value("spillway_split_requests_total", &["chat", arm, "2xx"]);
        assert_eq!((requests("a"), requests("b")), (2.0, 1.0));
        assert_eq!(page.count("spillway_split_requests_total"), 2);
        // From the first request on, so that an alert sees the first error as an increase.
        assert_eq!(page.count("spillway_split_errors_total"), 2 * ARM_ERRORS.len());
        for reason in ARM_ERRORS {
            assert_eq!(page.value("spillway_split_errors_total", &["chat", "a", reason]), 0.0);
        }
    }

    #[test]
    fn a_refusal_is_an_error_of_the_arm_if_the_server_is_at_fault() {
        for (status, refused) in [(503, 1.0), (500, 1.0), (429, 0.0), (400, 0.0)] {
            let shed = Some(Shed { reason: "queue_full", priority: 0 });
            let metrics = Metrics::new(Vec::new());
            metrics.record(&Outcome { shed, status, ..outcome(false) }, Money::ZERO);
            let page = Page::of(&metrics, &Live::default());
            let errors =
                |reason| page.value("spillway_split_errors_total", &["chat", "canary", reason]);
            assert_eq!((errors("refused"), errors("status")), (refused, 0.0), "{status}");
        }
    }

    #[test]
    fn a_fallback_is_an_error_of_the_arm_and_nothing_else_of_its_reply_counts() {
        let served = Outcome {
            fallback_for: Some("new".into()),
            model: Some("old".into()),
            ..outcome(true)
        };
        check(
            &[served],
            &["errors_total{,reason=\"fallback\"} 1", "requests_total{,status=\"fallback\"} 1"],
        );
    }

    #[test]
    fn replies_that_break_off_are_errors_and_what_clients_do_is_none() {
        let none = TokenCounts::default();
        let of = |status, end| Outcome { status, end, tokens: none, ..outcome(false) };
        check(
            &[
                of(200, End::Cut),
                of(200, End::Stalled),
                of(200, End::DeadlinePassed),
                of(500, End::Complete),
                of(404, End::Complete),
                of(200, End::CancelledInReply),
                Outcome { grpc_status: Some(14), ..of(200, End::Complete) },
                Outcome { grpc_status: Some(5), ..of(200, End::Complete) },
            ],
            &[
                "errors_total{,reason=\"cut\"} 1",
                "errors_total{,reason=\"deadline_passed\"} 1",
                "errors_total{,reason=\"stalled\"} 1",
                "errors_total{,reason=\"status\"} 2",
                "requests_total{,status=\"2xx\"} 6",
                "requests_total{,status=\"4xx\"} 1",
                "requests_total{,status=\"5xx\"} 1",
            ],
        );
    }
}
