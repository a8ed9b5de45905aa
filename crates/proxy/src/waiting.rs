//! Requests that wait in this node until one of its replicas has a place for them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use spillway_route::{WaitEntry, WaitLimit, WaitLimits, WaitQueue, WaitTicket, Waiting};
use spillway_types::{Deadline, ModelName, RouteName};
use tokio::sync::oneshot;

/// What waits together: requests that the same replicas can serve.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaitKey {
    route: RouteName,
    model: ModelName,
}

/// All queues of a node.
///
/// The lock is taken by requests that wait, and by ends of others while some wait; where nothing
/// waits one atomic says so.
#[derive(Debug)]
pub(crate) struct Waitings {
    limits: WaitLimits,
    count: AtomicUsize,
    queues: Mutex<Queues>,
}

type Queues = BTreeMap<WaitKey, WaitQueue<oneshot::Sender<Turn>>>;

/// A request's turn to look for a place. Dropped unused, it goes to the next one.
#[derive(Debug)]
pub(crate) struct Turn {
    waitings: Arc<Waitings>,
    key: WaitKey,
    is_used: bool,
}

/// A request's place in a queue; it leaves the queue when dropped.
#[derive(Debug)]
pub(crate) struct Stay {
    waitings: Arc<Waitings>,
    key: WaitKey,
    ticket: WaitTicket,
    turn: oneshot::Receiver<Turn>,
}

impl WaitKey {
    pub(crate) fn of(route: &RouteName, model: &ModelName) -> Self {
        Self { route: route.clone(), model: model.clone() }
    }
}

impl Waitings {
    pub(crate) fn new(limits: WaitLimits) -> Self {
        Self { limits, count: AtomicUsize::new(0), queues: Mutex::default() }
    }

    /// Requests that wait.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Requests that wait for each model.
    pub(crate) fn by_model(&self) -> BTreeMap<ModelName, u32> {
        let mut counts = BTreeMap::new();
        if self.count() > 0 {
            for (key, queue) in self.lock().iter() {
                *counts.entry(key.model.clone()).or_default() += clamped(queue.len());
            }
        }
        counts
    }

    /// How long a request may wait.
    pub(crate) fn longest(&self) -> Duration {
        Duration::from_millis(self.limits.wait_ms_max)
    }

    /// What waits that a request of this class which came now would have to wait for.
    pub(crate) fn before(&self, key: &WaitKey, priority: u8) -> Waiting {
        if self.count() == 0 {
            return Waiting { ahead: 0, all: 0, has_room: self.limits.count_max > 0 };
        }
        let queues = self.lock();
        let has_room = self.limits.count_max > 0;
        queues.get(key).map_or(Waiting { ahead: 0, all: 0, has_room }, |queue| Waiting {
            ahead: clamped(queue.ahead_of(priority)),
            all: clamped(queue.len()),
            has_room: queue.room(0).is_ok(),
        })
    }

    /// Lets a request of so many bytes and of this class wait until then at most.
    ///
    /// # Errors
    /// If the queue is full.
    pub(crate) fn enter(
        self: &Arc<Self>,
        key: WaitKey,
        until: Instant,
        (bytes, priority): (usize, u8),
    ) -> Result<Stay, WaitLimit> {
        let (sender, turn) = oneshot::channel();
        let now = Instant::now();
        let deadline = Deadline::after(now, until.saturating_duration_since(now));
        let entry = WaitEntry { item: sender, priority, deadline, bytes };
        let mut queues = self.lock();
        let queue = queues.entry(key.clone()).or_insert_with(|| WaitQueue::new(self.limits));
        let ticket = queue.push(entry, now).map_err(|full| full.limit)?;
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(Stay { waitings: Arc::clone(self), key, ticket, turn })
    }

    /// A place has come free somewhere, or may have: the first of each queue looks for itself.
    pub(crate) fn wake(self: &Arc<Self>) {
        if self.count() == 0 {
            return;
        }
        let keys: Vec<WaitKey> = self.lock().keys().cloned().collect();
        keys.iter().for_each(|key| self.wake_one(key));
    }

    fn wake_one(self: &Arc<Self>, key: &WaitKey) {
        let next = {
            let mut queues = self.lock();
            let Some(queue) = queues.get_mut(key) else { return };
            let next = queue.pop_next(Instant::now());
            if queue.is_empty() {
                queues.remove(key);
            }
            next
        };
        if let Some((_, entry)) = next {
            self.count.fetch_sub(1, Ordering::Relaxed);
            let turn = Turn { waitings: Arc::clone(self), key: key.clone(), is_used: false };
            // Whoever left in this very moment drops the turn, which then goes on to the next.
            drop(entry.item.send(turn));
        }
    }

    fn leave(&self, key: &WaitKey, ticket: WaitTicket) {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(key) else { return };
        if queue.remove(ticket).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        if queue.is_empty() {
            queues.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// The request looks for a place now.
    pub(crate) fn take(mut self) {
        self.is_used = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_used {
            self.waitings.wake_one(&self.key);
        }
    }
}

impl Stay {
    /// What waits together with it.
    pub(crate) fn waiting(&self) -> Waiting {
        let queues = self.waitings.lock();
        let queue = queues.get(&self.key);
        let ahead = queue.and_then(|queue| queue.position(self.ticket)).unwrap_or(0);
        let all = queue.map_or(0, WaitQueue::len);
        Waiting { ahead: clamped(ahead), all: clamped(all), has_room: true }
    }

    /// Waits for its turn.
    pub(crate) async fn turn(&mut self) {
        // The sender is dropped only with the queue, which lives as long as this does.
        if let Ok(turn) = (&mut self.turn).await {
            turn.take();
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.waitings.leave(&self.key, self.ticket);
    }
}

fn clamped(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waitings(count_max: usize) -> Arc<Waitings> {
        Arc::new(Waitings::new(WaitLimits { count_max, ..WaitLimits::default() }))
    }

    fn key() -> WaitKey {
        WaitKey::of(&"route".into(), &"model".into())
    }

    fn enter(waitings: &Arc<Waitings>) -> Result<Stay, WaitLimit> {
        waitings.enter(key(), Instant::now() + Duration::from_secs(60), (10, 0))
    }

    #[tokio::test]
    async fn turns_go_in_order_and_each_wakes_one() {
        let waitings = waitings(10);
        let (mut first, mut second) = (enter(&waitings).unwrap(), enter(&waitings).unwrap());
        assert_eq!(second.waiting(), Waiting { ahead: 1, all: 2, has_room: true });
        waitings.wake();
        first.turn().await;
        assert!(second.turn.try_recv().is_err());
        assert_eq!(waitings.count(), 1);
        waitings.wake();
        second.turn().await;
        assert_eq!((waitings.count(), waitings.lock().len()), (0, 0));
    }

    #[tokio::test]
    async fn a_more_urgent_class_has_its_turn_first() {
        let waitings = waitings(10);
        let mut late = enter(&waitings).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let mut last = waitings.enter(key(), until, (10, 3)).unwrap();
        let mut second = waitings.enter(key(), until, (10, 1)).unwrap();
        assert_eq!(waitings.before(&key(), 0).ahead, 1);
        assert_eq!(waitings.before(&key(), 1).ahead, 2);
        for turn in [&mut late, &mut second, &mut last] {
            waitings.wake();
            turn.turn().await;
        }
    }

    #[tokio::test]
    async fn a_turn_that_nobody_takes_goes_to_the_next() {
        let waitings = waitings(10);
        let (first, mut second) = (enter(&waitings).unwrap(), enter(&waitings).unwrap());
        waitings.wake();
        // Its client leaves before it looks.
        drop(first);
        second.turn().await;
        assert_eq!(waitings.count(), 0);
    }

    #[test]
    fn a_full_queue_takes_nobody_and_who_leaves_makes_room() {
        let waitings = waitings(1);
        assert!(waitings.before(&key(), 0).has_room);
        let first = enter(&waitings).unwrap();
        assert_eq!(enter(&waitings).unwrap_err(), WaitLimit::Count);
        assert_eq!(waitings.before(&key(), 0), Waiting { ahead: 1, all: 1, has_room: false });
        drop(first);
        assert_eq!(waitings.count(), 0);
        drop(enter(&waitings).unwrap());
    }
}
