//! Congestion window of a connection, by its kind.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use quinn::congestion::{Controller, ControllerFactory};
use quinn_proto::RttEstimator;

/// Window of a control connection, on lossy paths too.
///
/// Load reports are few, small, and worthless when late. A congestion control that slows down after
/// loss would delay them just when they are needed most: at 20 % loss and 230 ms it leaves ten
/// packets a second. This window gives 280 kB a second there.
const CONTROL_BYTES: u64 = 64 << 10;

/// Burst of an idle data connection, sent at once and not spread over a round trip: a request whose
/// body goes with its head, the head included.
///
/// Spread out, 64 KiB at 20 Mbit/s would take 26 ms more to the first byte. Sent at once they are
/// some fifty packets, which fit in the queue of any path between sites.
const BURST_BYTES: u64 = 80 << 10;

/// Window that turns off quinn's pacer, which lets packets go at once only above `u32::MAX`.
const NO_PACING: u64 = u64::MAX;

/// Switch that informs a connection's congestion control of the connection's kind. The accepting
/// side learns the kind only while the connection is set up.
#[derive(Clone, Debug, Default)]
pub(crate) struct KindSwitch(Arc<AtomicBool>);

impl KindSwitch {
    /// Makes this a control connection.
    pub(crate) fn is_control(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Factory of a congestion control that acts like `bulk` until the switch is set to control.
pub(crate) struct ByKind {
    pub(crate) bulk: Arc<dyn ControllerFactory + Send + Sync>,
    pub(crate) switch: KindSwitch,
}

impl ControllerFactory for ByKind {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let bulk = Arc::clone(&self.bulk).build(now, current_mtu);
        Box::new(KindController { bulk, switch: self.switch.clone(), burst_bytes: BURST_BYTES })
    }
}

struct KindController {
    bulk: Box<dyn Controller>,
    switch: KindSwitch,
    /// Bytes that are left of the burst.
    burst_bytes: u64,
}

impl fmt::Debug for KindController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindController").field("switch", &self.switch).finish_non_exhaustive()
    }
}

impl Controller for KindController {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.burst_bytes = self.burst_bytes.saturating_sub(bytes);
        self.bulk.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.bulk.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        // The connection is idle, so the next request may be sent as a burst again.
        if in_flight == 0 {
            self.burst_bytes = BURST_BYTES;
        }
        self.bulk.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        // A path that has just lost packets gets no burst.
        self.burst_bytes = 0;
        self.bulk.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.bulk.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        match (self.switch.0.load(Ordering::Relaxed), self.burst_bytes) {
            (true, _) => CONTROL_BYTES,
            (false, 0) => self.bulk.window(),
            // The burst is sent without pacing.
            (false, _) => NO_PACING,
        }
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let burst_bytes = self.burst_bytes;
        Box::new(Self { bulk: self.bulk.clone_box(), switch: self.switch.clone(), burst_bytes })
    }

    fn initial_window(&self) -> u64 {
        self.bulk.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quinn::congestion::NewRenoConfig;

    use super::*;

    fn controller(switch: &KindSwitch) -> Box<dyn Controller> {
        let bulk = Arc::new(NewRenoConfig::default());
        Arc::new(ByKind { bulk, switch: switch.clone() }).build(Instant::now(), 1_200)
    }

    #[test]
    fn an_idle_connection_may_send_one_burst_and_another_when_all_is_acknowledged() {
        let now = Instant::now();
        let mut controller = controller(&KindSwitch::default());
        let paced = NewRenoConfig::default();
        let paced = Arc::new(paced).build(now, 1_200).window();
        for packet in 0..64 {
            assert_eq!(controller.window(), NO_PACING);
            controller.on_sent(now, 1_280, packet);
        }
        assert_eq!(controller.window(), paced);
        controller.on_end_acks(now, 1_200, false, Some(62));
        assert_eq!(controller.window(), paced, "something is still under way");
        controller.on_end_acks(now, 0, false, Some(63));
        assert_eq!(controller.window(), NO_PACING);
    }

    #[test]
    fn loss_ends_the_burst() {
        let now = Instant::now();
        let mut controller = controller(&KindSwitch::default());
        controller.on_congestion_event(now, now - Duration::from_millis(50), false, 1_200);
        assert!(controller.window() < NO_PACING);
    }

    #[test]
    fn a_control_connection_has_a_window_of_its_own() {
        let switch = KindSwitch::default();
        let controller = controller(&switch);
        switch.is_control();
        assert_eq!(controller.window(), CONTROL_BYTES);
    }
}
