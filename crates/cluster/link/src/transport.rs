//! Settings of quinn's connections, made from the link's own settings.

use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn::{AckFrequencyConfig, TransportConfig, VarInt};

use crate::config::{Congestion, Transport, ms};
use crate::kind::Kind;
use crate::rpc::{BULK_STREAMS_MAX, CONTROL_STREAMS_MAX};
use crate::window::{ByKind, KindSwitch};

/// Smallest initial window of a data connection: one small request.
const WINDOW_BYTES_MIN: u64 = 32 << 10;
/// Largest initial window: a mistake in the config must not flood a path.
const WINDOW_BYTES_MAX: u64 = 1 << 20;

/// Bytes that a node may send before it is known to be a peer: a join question, or a hello. One
/// stream in each direction is enough for that.
const STRANGER_WINDOW_BYTES: u32 = 64 << 10;

/// Packets that are acknowledged together. With QUIC's usual two, half the packets of short
/// requests would be acknowledgements, and each wakes a node up. A last packet is acknowledged
/// after 25 ms, a gap at once.
const PACKETS_PER_ACKNOWLEDGEMENT: u32 = 10;

/// Makes the settings of a connection of `kind` that this node dials, over a path with a round trip
/// of about `rtt`.
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
            // Data connections carry no datagrams.
            .datagram_receive_buffer_size(None),
    };
    Arc::new(config)
}

/// Makes the settings of a connection that this node accepts. The kind becomes known only while the
/// connection is set up; then `switch` is set, and [`open_to_peer`] grants larger windows. A
/// granted window can't be taken back, so only a peer gets it. Other settings of a kind come from
/// the dialler: the shorter idle time of the two counts.
pub(crate) fn accepted(settings: &Transport, switch: &KindSwitch) -> Arc<TransportConfig> {
    let mut config = common(settings);
    let rtt = ms(settings.rtt_default_ms);
    config
        .initial_rtt(rtt)
        .congestion_controller_factory(by_kind(settings, switch, rtt))
        .max_idle_timeout(Some(VarInt::from_u32(settings.data_idle_ms).into()))
        // The kind is unknown yet, so the interval of control connections is used.
        .keep_alive_interval(Some(ms(settings.control_keep_alive_ms)));
    config
        .receive_window(VarInt::from_u32(STRANGER_WINDOW_BYTES))
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(1));
    Arc::new(config)
}

/// Grants an accepted connection the windows of its kind, once it is known to come from a peer.
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

/// Returns the bytes that a path of `mbit_per_s` Mbit/s carries in one round trip, within bounds.
fn initial_window_bytes(mbit_per_s: u32, rtt: Duration) -> u64 {
    // 1 Mbit/s is 125 bytes a millisecond.
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
