//! Polls a future only when it has news.
//!
//! hyper's server polls a reply's body several times for each piece, and the two halves of its
//! client wake each other. Taken literally, each token would poll the replica's connection about
//! seven times and reschedule the whole request once more. A special waker tells wake-ups from
//! outside (the socket) from those that happen during the very poll they ask for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use atomic_waker::AtomicWaker;

/// State after a poll that found nothing, without news since.
const QUIET: u8 = 0;
/// State during a poll.
const POLLING: u8 = 1;
/// State after a wake-up: polling is worthwhile.
const NEWS: u8 = 2;

/// Most rounds of one poll that wakes itself: the halves of a connection settle in two. A future
/// that keeps waking itself is asking to be polled later.
const ROUNDS_MAX: u32 = 4;

/// Gate in front of a polled future.
#[derive(Debug)]
pub(crate) struct WakeFlag {
    shared: Arc<WakeShared>,
    /// Waker for the future, made once.
    waker: Waker,
}

#[derive(Debug)]
struct WakeShared {
    state: AtomicU8,
    /// Task to wake for news from outside.
    task: AtomicWaker,
}

impl WakeFlag {
    pub(crate) fn new() -> Self {
        let shared = Arc::new(WakeShared { state: AtomicU8::new(NEWS), task: AtomicWaker::new() });
        Self { waker: Waker::from(Arc::clone(&shared)), shared }
    }

    /// Lets the next poll through. Call it when another waker than the gate's may have been
    /// registered last, e.g. after a poll from elsewhere.
    pub(crate) fn expect(&self) {
        self.shared.state.store(NEWS, Ordering::Release);
    }

    /// Polls `inner` if there is news, with a waker that makes news. `Pending` without news.
    pub(crate) fn poll<T>(
        &self,
        cx: &Context<'_>,
        mut inner: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let state = &self.shared.state;
        // Registered before the state is read: news in between wake the task.
        self.shared.task.register(cx.waker());
        if state.load(Ordering::Acquire) == QUIET {
            return Poll::Pending;
        }
        for _ in 0..ROUNDS_MAX {
            state.store(POLLING, Ordering::Release);
            if let Poll::Ready(ready) = inner(&mut Context::from_waker(&self.waker)) {
                // More may follow.
                state.store(NEWS, Ordering::Release);
                return Poll::Ready(ready);
            }
            // POLLING => (QUIET | NEWS): quiet only if no wake-up came during the poll.
            let settled =
                state.compare_exchange(POLLING, QUIET, Ordering::AcqRel, Ordering::Acquire);
            if settled.is_ok() {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Wake for WakeShared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A poll in progress sees the news itself; only a quiet task must be woken.
        if self.state.swap(NEWS, Ordering::AcqRel) == QUIET {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[derive(Default)]
    struct Task(AtomicU32);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Fixture {
        news: WakeFlag,
        task: Arc<Task>,
        polls: u32,
    }

    impl Fixture {
        fn new() -> Self {
            Self { news: WakeFlag::new(), task: Arc::default(), polls: 0 }
        }

        fn poll(&mut self, mut inner: impl FnMut(u32, &mut Context<'_>) -> Poll<u32>) -> Poll<u32> {
            let waker = Waker::from(Arc::clone(&self.task));
            let polls = &mut self.polls;
            self.news.poll(&Context::from_waker(&waker), |cx| {
                *polls += 1;
                inner(*polls, cx)
            })
        }

        fn woken(&self) -> u32 {
            self.task.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn without_news_nothing_is_polled_again() {
        let mut fixture = Fixture::new();
        for _ in 0..5 {
            assert!(fixture.poll(|_, _| Poll::Pending).is_pending());
        }
        assert_eq!((fixture.polls, fixture.woken()), (1, 0));
    }

    #[test]
    fn news_from_outside_wake_the_task_once_and_are_polled() {
        let mut fixture = Fixture::new();
        let mut outside = None;
        assert!(
            fixture
                .poll(|_, cx| {
                    outside = Some(cx.waker().clone());
                    Poll::Pending
                })
                .is_pending()
        );
        let outside = outside.expect("polled");
        outside.wake_by_ref();
        outside.wake();
        assert_eq!(fixture.woken(), 1);
        assert_eq!(fixture.poll(|polls, _| Poll::Ready(polls)), Poll::Ready(2));
    }

    #[test]
    fn a_wake_up_during_the_poll_is_answered_at_once_without_waking_the_task() {
        let mut fixture = Fixture::new();
        let polled = fixture.poll(|polls, cx| {
            if polls == 1 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(polls)
        });
        assert_eq!(polled, Poll::Ready(2));
        assert_eq!(fixture.woken(), 0);
    }

    #[test]
    fn what_wakes_itself_for_ever_is_polled_later_and_not_lost() {
        let mut fixture = Fixture::new();
        let restless = |_, cx: &mut Context<'_>| {
            cx.waker().wake_by_ref();
            Poll::Pending
        };
        assert!(fixture.poll(restless).is_pending());
        assert_eq!((fixture.polls, fixture.woken()), (ROUNDS_MAX, 1));
        assert!(fixture.poll(restless).is_pending());
        assert_eq!(fixture.polls, 2 * ROUNDS_MAX);
    }

    #[test]
    fn after_something_ready_there_may_be_more() {
        let mut fixture = Fixture::new();
        assert!(fixture.poll(|_, _| Poll::Ready(0)).is_ready());
        assert!(fixture.poll(|_, _| Poll::Ready(0)).is_ready());
        assert!(fixture.poll(|_, _| Poll::Pending).is_pending());
        fixture.news.expect();
        assert!(fixture.poll(|_, _| Poll::Ready(0)).is_ready());
    }
}
