//! Metrics of requests that are not by route and model.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use spillway_types::{End, Outcome};

use crate::catalog::requests;
use crate::live::Live;
use crate::register::{Labels, metric, raise, raise_each, registered};

registered! {
    /// Metrics of requests.
    #[derive(Debug)]
    pub(crate) struct RequestMetrics {
        retries: Family<Labels, Counter> = metric(requests::RETRIES),
        cancels: Family<Labels, Counter> = metric(requests::CANCELS),
        retries_refused: Counter = metric(requests::RETRIES_REFUSED),
        engines_died: Counter = metric(requests::ENGINES_DIED),
        residency: Family<Labels, Counter> = metric(requests::RESIDENCY_REFUSALS),
        responses_not_kept: Family<Labels, Counter> = metric(requests::RESPONSES_NOT_KEPT),
        home_news_dropped: Family<Labels, Counter> = metric(requests::HOME_NEWS_DROPPED),
        home_changes: Family<Labels, Counter> = metric(requests::HOME_CHANGES),
        continuations: Family<Labels, Counter> = metric(requests::CONTINUATIONS),
        waiting: Family<Labels, Gauge> = metric(requests::WAITING),
        guests: Gauge = metric(requests::GUESTS),
        guest_requests: Family<Labels, Counter> = metric(requests::GUEST_REQUESTS),
    }
}

impl RequestMetrics {
    /// Counts a finished request.
    pub(crate) fn record(&self, outcome: &Outcome) {
        if outcome.is_guest {
            let class = format!("{}xx", outcome.status / 100);
            self.guest_requests.get_or_create(&vec![("status", class)]).inc();
        }
        self.record_retries(outcome);
        self.record_cancel(outcome.end);
    }

    /// Shows the values of a scrape.
    pub(crate) fn show(&self, live: &Live) {
        // Cleared first, so that models with no waiting request vanish.
        self.waiting.clear();
        for (model, count) in &live.waiting {
            let labels = vec![("model", model.clone())];
            self.waiting.get_or_create(&labels).set(i64::from(*count));
        }
        self.guests.set(i64::from(live.guests));
        raise(&self.retries_refused, live.retries_refused);
        raise(&self.engines_died, live.engines_died);
        raise_each(&self.residency, "at", &live.residency);
        raise_each(&self.responses_not_kept, "reason", &live.responses_not_kept);
        raise_each(&self.home_news_dropped, "queue", &live.home_news_dropped);
        for (kept, to, total) in &live.home_changes {
            let labels = vec![("kept", (*kept).to_owned()), ("to", (*to).to_owned())];
            raise(&self.home_changes.get_or_create(&labels), *total);
        }
        for (result, reason, total) in &live.continuations {
            let labels = vec![("result", (*result).to_owned()), ("reason", (*reason).to_owned())];
            raise(&self.continuations.get_or_create(&labels), *total);
        }
    }

    fn record_retries(&self, outcome: &Outcome) {
        for (cause, count) in [("unsent", outcome.retries_unsent), ("reset", outcome.retries_reset)]
        {
            if count > 0 {
                let labels = vec![("cause", cause.to_owned())];
                self.retries.get_or_create(&labels).inc_by(u64::from(count));
            }
        }
    }

    fn record_cancel(&self, end: End) {
        let phase = match end {
            End::CancelledBeforeReply => "before_reply",
            End::CancelledInReply => "in_reply",
            End::Complete | End::Answered | End::Cut | End::Stalled | End::DeadlinePassed => return,
        };
        self.cancels.get_or_create(&vec![("phase", phase.to_owned())]).inc();
    }
}
