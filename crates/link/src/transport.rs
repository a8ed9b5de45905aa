//! The settings of quinn's connections, from ours.

use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn::{AckFrequencyConfig, TransportConfig, VarInt};

use crate::config::{Congestion, Transport, ms};
use crate::kind::Kind;
use crate::rpc::{BULK_STREAMS_MAX, CONTROL_STREAMS_MAX};
use crate::window::{ByKind, KindSwitch};

/// The least that a data connection may have under way at first: one small request.
const WINDOW_BYTES_MIN: u64 = 32 << 10;
/// The most: a mistake in the config must not flood a path.
const WINDOW_BYTES_MAX: u64 = 1 << 20;

/// What somebody may send before this node knows that it is a peer: a question at the gate, or a
/// hello. One stream of each direction is enough for that.
const STRANGER_WINDOW_BYTES: u32 = 64 << 10;

/// Packets that are acknowledged together. With QUIC's usual two, half the packets of short requests
/// are acknowledgements, and each wakes a node up. What comes late is acknowledged after 25 ms, and
/// gaps at once.
const PACKETS_PER_ACKNOWLEDGEMENT: u32 = 10;

/// Settings of a connection of `kind` that this node dials, over a path of about `rtt`.
pub(crate) fn dialled(settings: &Transport, kind: Kind, rtt: Duration) -> Arc<TransportConfig> {
    let mut config = common(settings);
    let switch = KindSwitch::default();
    if kind == Kind::Control {
        switch.is_control();
    }
    config.initial_rtt(rtt).congestion_controller_factory(by_kind(settings, &switch, rtt));
    match kind {
        Kind::Control => config
            .max_idle_timeout(Some(VarInt::from_u32(settings.control_idle_ms).into()))
            .keep_alive_interval(Some(ms(settings.control_keep_alive_ms)))
            .max_concurrent_bidi_streams(VarInt::from_u32(CONTROL_STREAMS_MAX)),
        Kind::Data => config
            .max_idle_timeout(Some(VarInt::from_u32(settings.data_idle_ms).into()))
            .keep_alive_interval(Some(ms(settings.data_keep_alive_ms)))
            .datagram_receive_buffer_size(None),
    };
    Arc::new(config)
}

/// Settings of a connection that this node accepts. Its kind is not known before it is set up; then
/// `switch` is told, and [`open_to_peer`] makes room. Room that was given can't be taken back, so
/// whoever is no peer never gets it. The rest of what is special to a kind comes from the dialler:
/// the shorter idle time of both counts.
pub(crate) fn accepted(settings: &Transport, switch: &KindSwitch) -> Arc<TransportConfig> {
    let mut config = common(settings);
    let rtt = ms(settings.rtt_default_ms);
    config
        .initial_rtt(rtt)
        .congestion_controller_factory(by_kind(settings, switch, rtt))
        .max_idle_timeout(Some(VarInt::from_u32(settings.data_idle_ms).into()))
        .keep_alive_interval(Some(ms(settings.control_keep_alive_ms)));
    config
        .receive_window(VarInt::from_u32(STRANGER_WINDOW_BYTES))
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(1));
    Arc::new(config)
}

/// Gives an accepted connection the room of its kind, once it is known to be a peer's.
pub(crate) fn open_to_peer(settings: &Transport, connection: &quinn::Connection, kind: Kind) {
    let streams = match kind {
        Kind::Control => CONTROL_STREAMS_MAX,
        Kind::Data => settings.streams_max,
    };
    connection.set_receive_window(VarInt::from_u32(settings.connection_window_bytes));
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(streams));
    connection.set_max_concurrent_uni_streams(VarInt::from_u32(BULK_STREAMS_MAX));
}

fn common(settings: &Transport) -> TransportConfig {
    let mut config = TransportConfig::default();
    let mut acknowledgements = AckFrequencyConfig::default();
    acknowledgements.ack_eliciting_threshold(VarInt::from_u32(PACKETS_PER_ACKNOWLEDGEMENT));
    config
        .ack_frequency_config(Some(acknowledgements))
        .stream_receive_window(VarInt::from_u32(settings.stream_window_bytes))
        .receive_window(VarInt::from_u32(settings.connection_window_bytes))
        .send_window(settings.send_window_bytes.into())
        .max_concurrent_bidi_streams(VarInt::from_u32(settings.streams_max))
        .max_concurrent_uni_streams(VarInt::from_u32(BULK_STREAMS_MAX))
        .datagram_receive_buffer_size(Some(settings.datagram_receive_bytes))
        .datagram_send_buffer_size(settings.datagram_send_bytes);
    config
}

fn by_kind(settings: &Transport, switch: &KindSwitch, rtt: Duration) -> Arc<ByKind> {
    Arc::new(ByKind { bulk: bulk(settings, rtt), switch: switch.clone() })
}

fn bulk(settings: &Transport, rtt: Duration) -> Arc<dyn ControllerFactory + Send + Sync> {
    let window = initial_window_bytes(settings.initial_mbit_per_s, rtt);
    match settings.congestion {
        Congestion::Cubic => {
            let mut config = CubicConfig::default();
            config.initial_window(window);
            Arc::new(config)
        }
        Congestion::NewReno => {
            let mut config = NewRenoConfig::default();
            config.initial_window(window);
            Arc::new(config)
        }
        Congestion::Bbr => {
            let mut config = BbrConfig::default();
            config.initial_window(window);
            Arc::new(config)
        }
    }
}

/// What a path of so many Mbit/s carries in one round trip, within bounds.
fn initial_window_bytes(mbit_per_s: u32, rtt: Duration) -> u64 {
    // A thousandth of a Mbit is 125 bytes.
    let bytes = u64::from(mbit_per_s) * 125 * rtt.as_millis() as u64;
    bytes.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_window_is_what_the_path_carries_in_a_round_trip() {
        let window =
            |mbit_per_s, rtt_ms| initial_window_bytes(mbit_per_s, Duration::from_millis(rtt_ms));
        assert_eq!(window(20, 100), 250_000);
        assert_eq!(window(20, 227), 567_500);
        assert_eq!(window(20, 1), WINDOW_BYTES_MIN);
        assert_eq!(window(10_000, 200), WINDOW_BYTES_MAX);
        assert_eq!(window(0, 200), WINDOW_BYTES_MIN);
    }
}
