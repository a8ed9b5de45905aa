//! Messages of the answers that the gateway itself gives.

use bytes::Bytes;

use super::FRAME_HEAD_BYTES;
use super::peek::{ModelRef, Peek, frame_head_of, read_model};
use super::wire::{put_bytes, put_number};

/// Status of a service in `grpc.health.v1.Health/Check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// The service accepts calls.
    Serving,
    /// The service does not accept calls at present.
    NotServing,
}

/// Returns a framed `ServerLiveResponse` or `ServerReadyResponse`, which differ only in name.
#[must_use]
pub fn server_flag_answer(is_so: bool) -> Bytes {
    let mut message = Vec::new();
    put_number(&mut message, 1, u64::from(is_so));
    framed(&message)
}

/// Returns a framed `ServerMetadataResponse` without extensions.
#[must_use]
pub fn server_metadata_answer(name: &str, version: &str) -> Bytes {
    let mut message = Vec::new();
    put_bytes(&mut message, 1, name.as_bytes());
    put_bytes(&mut message, 2, version.as_bytes());
    framed(&message)
}

/// Returns a framed `HealthCheckResponse`.
#[must_use]
pub fn health_answer(serving: Serving) -> Bytes {
    let mut message = Vec::new();
    let number = match serving {
        Serving::Serving => 1,
        Serving::NotServing => 2,
    };
    put_number(&mut message, 1, number);
    framed(&message)
}

/// Returns the service in a framed `HealthCheckRequest`, empty for the whole server; `None` if the
/// request cannot be parsed.
#[must_use]
pub fn health_service(body: &[u8]) -> Option<&str> {
    // The only field has the number that the model's name has in other requests.
    match read_model(body) {
        Peek::Found(ModelRef { model, .. }) => Some(model),
        Peek::NeedMore | Peek::Compressed | Peek::Malformed => None,
    }
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut framed = Vec::with_capacity(FRAME_HEAD_BYTES + message.len());
    framed.extend_from_slice(&frame_head_of(length));
    framed.extend_from_slice(message);
    framed.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_framed_messages() {
        assert_eq!(&server_flag_answer(true)[..], b"\0\0\0\0\x02\x08\x01");
        assert_eq!(&server_flag_answer(false)[..], b"\0\0\0\0\0");
        assert_eq!(&health_answer(Serving::Serving)[..], b"\0\0\0\0\x02\x08\x01");
        assert_eq!(&health_answer(Serving::NotServing)[..], b"\0\0\0\0\x02\x08\x02");
        assert_eq!(&server_metadata_answer("s", "1")[..], b"\0\0\0\0\x06\x0A\x01s\x12\x011");
    }

    #[test]
    fn the_service_asked_for_is_read() {
        assert_eq!(health_service(b"\0\0\0\0\0"), Some(""));
        assert_eq!(health_service(b"\0\0\0\0\x03\x0A\x01s"), Some("s"));
        assert_eq!(health_service(b"\0\0\0\0\x03\x0A"), None);
    }
}
