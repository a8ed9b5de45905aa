//! How much may be under way on a connection, by its kind.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use quinn::congestion::{Controller, ControllerFactory};
use quinn_proto::RttEstimator;

/// What a control connection may have under way, lossy path or not.
///
/// Load reports are few, small, and worthless when late. A congestion control that answers loss
/// with patience would hold them back just when they are needed most: at 20 % loss and 230 ms it
/// leaves ten packets a second. So many bytes are 280 kB a second there.
const CONTROL_BYTES: u64 = 64 << 10;

/// Tells a connection's congestion control its kind, which the side that accepts learns only while
/// the connection is set up.
#[derive(Clone, Debug, Default)]
pub(crate) struct KindSwitch(Arc<AtomicBool>);

impl KindSwitch {
    /// From now on it is a control connection.
    pub(crate) fn is_control(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes a congestion control that does as `bulk` does until the switch says control.
pub(crate) struct ByKind {
    pub(crate) bulk: Arc<dyn ControllerFactory + Send + Sync>,
    pub(crate) switch: KindSwitch,
}

impl ControllerFactory for ByKind {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let bulk = Arc::clone(&self.bulk).build(now, current_mtu);
        Box::new(KindController { bulk, switch: self.switch.clone() })
    }
}

struct KindController {
    bulk: Box<dyn Controller>,
    switch: KindSwitch,
}

impl fmt::Debug for KindController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindController").field("switch", &self.switch).finish_non_exhaustive()
    }
}

impl Controller for KindController {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
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
        self.bulk.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.bulk.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.bulk.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        if self.switch.0.load(Ordering::Relaxed) { CONTROL_BYTES } else { self.bulk.window() }
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { bulk: self.bulk.clone_box(), switch: self.switch.clone() })
    }

    fn initial_window(&self) -> u64 {
        self.bulk.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
