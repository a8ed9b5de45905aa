//! Health protocol of gRPC, `grpc.health.v1.Health/Check`, encoded and decoded by hand.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::TE;
use http::{HeaderValue, Method};

use super::CheckResult;
use crate::http::{HttpClient, HttpReply, RequestError, Reuse};

const PATH: &str = "/grpc.health.v1.Health/Check";
/// Tag of field 1 with a length: `HealthCheckRequest.service`.
const SERVICE_TAG: u8 = 0x0a;
/// Number of `HealthCheckResponse.status`.
const STATUS_FIELD: u64 = 1;
const SERVING: u64 = 1;
const NOT_SERVING: u64 = 2;
/// gRPC status when a reply breaks the protocol: 13, internal.
const INTERNAL: u32 = 13;

/// Asks for the health of `service`; the empty name means the server as a whole.
pub(super) async fn check(
    client: &mut HttpClient,
    service: &str,
    bound: Duration,
) -> Result<CheckResult, RequestError> {
    let body = (HeaderValue::from_static("application/grpc"), encode(service));
    let mut request = client.request(Method::POST, PATH, Some(body))?;
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    let reply = client.send(request, Reuse::Fresh, bound).await?;
    judge(&reply)
}

fn judge(reply: &HttpReply) -> Result<CheckResult, RequestError> {
    if !reply.status.is_success() {
        return Err(RequestError::Status(reply.status.as_u16()));
    }
    // A reply with an error and no message has the status in its headers.
    let status = reply.trailers.get("grpc-status").or_else(|| reply.headers.get("grpc-status"));
    let status = status.and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(INTERNAL);
    if status != 0 {
        return Err(RequestError::GrpcStatus(status));
    }
    match decode(&reply.body) {
        Some(SERVING) => Ok(CheckResult::Good),
        Some(NOT_SERVING) => Ok(CheckResult::NotReady),
        // UNKNOWN and SERVICE_UNKNOWN say nothing about health.
        _ => Err(RequestError::WrongAnswer),
    }
}

/// Encodes a `HealthCheckRequest` as a gRPC frame: no compression, length, message.
fn encode(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(SERVICE_TAG);
        put_varint(&mut message, service.len() as u64);
        message.put_slice(service.as_bytes());
    }
    let mut frame = BytesMut::with_capacity(5 + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(&message);
    frame.freeze()
}

fn put_varint(bytes: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        bytes.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.put_u8(value as u8);
}

/// Decodes the status in a framed `HealthCheckResponse`; `None` if the frame is not valid.
pub(crate) fn decode(frame: &[u8]) -> Option<u64> {
    let (head, message) = frame.split_at_checked(5)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    // The first byte is set for a compressed message, which was not asked for.
    if head[0] != 0 || usize::try_from(length).ok()? != message.len() {
        return None;
    }
    // Protobuf leaves out a field of value 0, which means "unknown".
    let mut status = 0;
    let mut rest = message;
    while !rest.is_empty() {
        let tag = take_varint(&mut rest)?;
        match tag & 7 {
            0 => {
                let value = take_varint(&mut rest)?;
                if tag >> 3 == STATUS_FIELD {
                    status = value;
                }
            }
            // Other fields are skipped by their wire type: 64 bits, length, 32 bits.
            1 => rest = rest.get(8..)?,
            2 => {
                let length = take_varint(&mut rest)?;
                rest = rest.get(usize::try_from(length).ok()?..)?;
            }
            5 => rest = rest.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, others) = rest.split_first()?;
        *rest = others;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(message: &[u8]) -> Vec<u8> {
        let mut frame = vec![0, 0, 0, 0, message.len() as u8];
        frame.extend_from_slice(message);
        frame
    }

    #[test]
    fn requests_have_the_bytes_of_the_protocol() {
        assert_eq!(&encode("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&encode("ab")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let long = encode(&"x".repeat(300));
        assert_eq!(&long[..8], [0, 0, 0, 0x01, 0x2f, 0x0a, 0xac, 0x02]);
        assert_eq!(long.len(), 8 + 300);
    }

    #[test]
    fn the_status_is_found_among_fields_of_later_versions() {
        assert_eq!(decode(&frame(&[0x08, 1])), Some(SERVING));
        assert_eq!(decode(&frame(&[0x08, 2])), Some(NOT_SERVING));
        assert_eq!(decode(&frame(&[])), Some(0));
        assert_eq!(decode(&frame(&[0x12, 2, 9, 9, 0x08, 1, 0x1d, 1, 2, 3, 4])), Some(SERVING));
    }

    #[test]
    fn what_is_no_message_is_no_status() {
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[1, 0, 0, 0, 2, 0x08, 1]), None, "compressed");
        assert_eq!(decode(&[0, 0, 0, 0, 3, 0x08, 1]), None, "short");
        assert_eq!(decode(&frame(&[0x08])), None);
        assert_eq!(decode(&frame(&[0x12, 200, 1])), None);
        assert_eq!(decode(&frame(&[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255])), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _: Option<u64> = decode(&bytes);
            let _: Option<u64> = decode(&frame(&bytes));
        }
    }
}
