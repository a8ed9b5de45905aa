//! Orders for the audit trail that are no command of the log: orders to this node alone, and
//! attempts that it refused.
//!
//! Answers never wait for the trail: records wait in a queue, and are written as soon as there is a
//! leader. Each caller has a rate limit, so that none pushes the records of others out of the
//! trail; records beyond the limit are counted in the next one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use spillway_cluster_state::{Actor, Command, Outcome, RefusalCode, RequestId};
use spillway_control_plane::ControlPlane;
use tokio::sync::{mpsc, watch};

use crate::secrets::random;

/// Records that wait for a leader. Later ones are in the node's log alone.
const QUEUE_MAX: usize = 256;
/// Callers whose rates are remembered; beyond that number the longest silent one is forgotten.
const CALLERS_MAX: usize = 1_024;
/// Refused attempts of one caller that are recorded at once, and the time until one more is.
const REFUSALS: Rate = Rate { burst: 32, period: Duration::from_secs(600) };
/// Limit like [`REFUSALS`], for all callers without a good token together.
const STRANGERS: Rate = Rate { burst: 8, period: Duration::from_secs(1_800) };
/// Limit like [`REFUSALS`], for orders that programs repeat, such as load reports about one
/// replica.
const REPEATED: Rate = Rate { burst: 1, period: Duration::from_secs(3_600) };
/// Time limit of one attempt to write a record, pause before the next, and number of attempts.
const LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(2);
const ATTEMPTS_MAX: usize = 300;
/// Longest text of a record, in bytes: a text of the agreed state has no more.
const TEXT_BYTES_MAX: usize = 128;
/// Longest order in it, which leaves room for the rest of the record.
const ORDER_BYTES_MAX: usize = 80;
/// Name in the audit trail of callers without a good token.
pub(crate) const STRANGER: &str = "unauthenticated";

/// An order for the audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) caller: String,
    /// The order in words, without secrets.
    pub(crate) what: String,
    /// Reason for which it was refused; `None` if it was carried out.
    pub(crate) refused: Option<String>,
}

/// Frequency at which one order is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Each time: a person gives the order.
    EachTime,
    /// At first and then once an hour: a program repeats it.
    Hourly,
}

/// Queue of orders for the audit trail. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Orders(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: mpsc::Sender<Order>,
    /// Taken by the task that writes.
    waiting: Mutex<Option<mpsc::Receiver<Order>>>,
    rates: Mutex<Rates>,
    /// Number of orders that are neither written nor abandoned.
    unwritten: watch::Sender<usize>,
}

impl Default for Orders {
    fn default() -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let waiting = Mutex::new(Some(waiting));
        let (rates, unwritten) = (Mutex::default(), watch::Sender::new(0));
        Self(Arc::new(Shared { queue, waiting, rates, unwritten }))
    }
}

impl Orders {
    /// Records an order that was carried out.
    pub(crate) fn done(&self, caller: &str, what: String, recorded: Recorded) {
        let what = cut(&what, ORDER_BYTES_MAX);
        let order = Order { caller: caller.to_owned(), what, refused: None };
        match recorded {
            Recorded::EachTime => self.send(order),
            Recorded::Hourly => {
                let key = format!("{} {}", order.caller, order.what);
                self.send_at_rate(key, REPEATED, order);
            }
        }
    }

    /// Records an attempt that was refused. `caller` is `None` without a good token.
    pub(crate) fn refused(&self, caller: Option<&str>, what: String, cause: &str) {
        let rate = if caller.is_some() { REFUSALS } else { STRANGERS };
        let what = cut(&what, ORDER_BYTES_MAX);
        let caller = caller.unwrap_or(STRANGER).to_owned();
        let refused = Some(cut(cause, TEXT_BYTES_MAX));
        self.send_at_rate(format!("refused {caller}"), rate, Order { caller, what, refused });
    }

    fn send_at_rate(&self, key: String, rate: Rate, mut order: Order) {
        let mut rates = self.0.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(skipped) = rates.take(key, rate, Instant::now()) else { return };
        drop(rates);
        if skipped > 0 {
            order.what.push_str(&format!(" ({skipped} more before)"));
        }
        self.send(order);
    }

    fn send(&self, order: Order) {
        let Order { caller, what, refused } = &order;
        // The node's log has it even without a cluster or a leader.
        tracing::info!(%caller, %what, refused = refused.as_deref(), "an order to this node");
        // Before the writer can have it.
        self.0.unwritten.send_modify(|count| *count += 1);
        if self.0.queue.try_send(order).is_err() {
            self.0.settle();
            tracing::warn!(
                "too many orders wait for the audit trail: this order is only in this log"
            );
        }
    }

    /// Writes the orders into the audit trail for ever. Later calls end at once.
    pub(crate) async fn write(&self, control_plane: Weak<ControlPlane>) {
        let waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut waiting) = waiting else { return };
        while let Some(order) = waiting.recv().await {
            if !write(&control_plane, &order).await {
                tracing::warn!(?order, "an order is not in the audit trail");
            }
            self.0.settle();
        }
    }

    /// Waits until all orders are written, for as long as `limit`. Returns the number of those that
    /// are not.
    pub(crate) async fn written(&self, limit: Duration) -> usize {
        let mut unwritten = self.0.unwritten.subscribe();
        let done = tokio::time::timeout(limit, unwritten.wait_for(|count| *count == 0)).await;
        if done.is_ok() { 0 } else { *self.0.unwritten.borrow() }
    }
}

impl Shared {
    /// Counts an order as written, or as abandoned.
    fn settle(&self) {
        self.unwritten.send_modify(|count| *count -= 1);
    }
}

/// Writes one order; returns false if that failed permanently.
async fn write(control_plane: &Weak<ControlPlane>, order: &Order) -> bool {
    // One id makes all attempts one request.
    let Ok(id) = random() else { return false };
    for _ in 0..ATTEMPTS_MAX {
        // This task alone keeps no node alive.
        let Some(control_plane) = control_plane.upgrade() else { return false };
        // A node without the right of orders has its own in the nodes' trail.
        let (actor, what) = match control_plane.may_order() {
            true => (Actor::Operator(order.caller.clone()), order.what.clone()),
            false => (Actor::Node, format!("{} by {}", order.what, order.caller)),
        };
        let command = Command::RecordOrder {
            what: cut(&what, TEXT_BYTES_MAX),
            refused: order.refused.clone(),
        };
        let request = Some(RequestId::unkeyed(id));
        match control_plane.propose(command, actor, request, LIMIT).await {
            Ok(done) => match done.outcome {
                // A node of an earlier release may be replaced soon.
                Outcome::Refused(refusal)
                    if matches!(
                        refusal.code,
                        RefusalCode::NotFormed | RefusalCode::WireVersion
                    ) => {}
                // The record of an attempt that was refused is a refusal.
                Outcome::Refused(refusal) => {
                    return order.refused.as_ref() == Some(&refusal.cause);
                }
                _ => return true,
            },
            Err(error) => tracing::debug!(%error, "an order waits for the audit trail"),
        }
        drop(control_plane);
        tokio::time::sleep(PAUSE).await;
    }
    false
}

/// Cuts a text to the room in a record, and replaces control characters.
fn cut(text: &str, bytes_max: usize) -> String {
    let end = text.floor_char_boundary(bytes_max);
    text[..end].replace(char::is_control, " ")
}

/// Rate at which orders are recorded.
#[derive(Clone, Copy, Debug)]
struct Rate {
    burst: u32,
    /// Time after which one more may be recorded.
    period: Duration,
}

/// Orders of each caller that may be recorded now.
#[derive(Debug, Default)]
struct Rates(BTreeMap<String, Allowance>);

#[derive(Debug)]
struct Allowance {
    left: u32,
    /// Time up to which the allowance has grown.
    at: Instant,
    last: Instant,
    skipped: u64,
}

impl Rates {
    /// Takes one order of `key` in: returns how many were skipped before it, or `None` if it is
    /// skipped itself.
    fn take(&mut self, key: String, rate: Rate, now: Instant) -> Option<u64> {
        if self.0.len() >= CALLERS_MAX && !self.0.contains_key(&key) {
            let silent = self.0.iter().min_by_key(|(_, it)| it.last).map(|(key, _)| key.clone());
            if let Some(key) = silent {
                self.0.remove(&key);
            }
        }
        let fresh = Allowance { left: rate.burst, at: now, last: now, skipped: 0 };
        let allowance = self.0.entry(key).or_insert(fresh);
        let periods = now.duration_since(allowance.at).as_millis() / rate.period.as_millis();
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        allowance.left = allowance.left.saturating_add(periods).min(rate.burst);
        allowance.at += rate.period.saturating_mul(periods);
        allowance.last = now;
        if allowance.left == 0 {
            allowance.skipped += 1;
            return None;
        }
        allowance.left -= 1;
        Some(std::mem::take(&mut allowance.skipped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { burst: 2, period: Duration::from_secs(10) };

    #[test]
    fn a_caller_has_a_burst_and_then_a_rate_and_what_is_skipped_is_counted() {
        let (mut rates, start) = (Rates::default(), Instant::now());
        let mut take =
            |key: &str, s| rates.take(key.to_owned(), RATE, start + Duration::from_secs(s));
        assert_eq!([take("a", 0), take("a", 0), take("a", 1)], [Some(0), Some(0), None]);
        assert_eq!(take("b", 1), Some(0), "each has its own");
        assert_eq!([take("a", 9), take("a", 10), take("a", 11)], [None, Some(2), None]);
        assert_eq!([take("a", 500), take("a", 500), take("a", 500)], [Some(1), Some(0), None]);
    }

    #[test]
    fn the_number_of_callers_is_bounded() {
        let (mut rates, start) = (Rates::default(), Instant::now());
        for number in 0..2 * CALLERS_MAX {
            let now = start + Duration::from_millis(number as u64);
            assert_eq!(rates.take(number.to_string(), RATE, now), Some(0));
        }
        assert_eq!(rates.0.len(), CALLERS_MAX);
    }

    #[test]
    fn strangers_can_not_fill_the_queue() {
        let orders = Orders::default();
        for number in 0..10_000 {
            orders.refused(None, format!("POST /v1/keys/{number}"), "there is no token");
        }
        orders.done("ada", "drain replica r".to_owned(), Recorded::EachTime);
        let mut waiting = orders.0.waiting.lock().unwrap().take().unwrap();
        let mut callers = Vec::new();
        while let Ok(order) = waiting.try_recv() {
            callers.push(order.caller);
        }
        assert_eq!(callers.len(), 1 + STRANGERS.burst as usize);
        assert_eq!(callers.last().map(String::as_str), Some("ada"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_orders_that_are_not_written_and_not_for_ever() {
        let orders = Orders::default();
        assert_eq!(orders.written(Duration::ZERO).await, 0, "there is none");
        for _ in 0..2 {
            orders.done("ada", "drain replica r".to_owned(), Recorded::EachTime);
        }
        let begun = tokio::time::Instant::now();
        assert_eq!(orders.written(Duration::from_secs(3)).await, 2);
        assert_eq!(begun.elapsed(), Duration::from_secs(3));
        // Without a control plane the writer gives them up.
        let (left, ()) = tokio::join!(orders.written(Duration::from_secs(3)), async {
            drop(tokio::time::timeout(Duration::from_secs(1), orders.write(Weak::new())).await);
        });
        assert_eq!(left, 0);
    }

    #[test]
    fn an_order_beyond_the_queue_holds_the_end_up_no_longer() {
        let orders = Orders::default();
        for _ in 0..QUEUE_MAX + 9 {
            orders.done("ada", "drain replica r".to_owned(), Recorded::EachTime);
        }
        assert_eq!(*orders.0.unwritten.borrow(), QUEUE_MAX);
    }

    #[test]
    fn a_text_has_no_control_characters_and_a_length() {
        let text = cut(&"\u{1b}é".repeat(100), TEXT_BYTES_MAX);
        assert!(text.len() <= TEXT_BYTES_MAX && !text.contains('\u{1b}'), "{text:?}");
    }
}
