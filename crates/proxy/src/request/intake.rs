//! Takes a request's body in, within bounds of size, memory and time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body::Body;
use http_body_util::BodyExt;
use spillway_protocol::{ErrorKind, GatewayError};
use spillway_route::ShedReason;
use tokio::time::{timeout, timeout_at};

use crate::client::BodyHolder;
use crate::gateway::{BodyReservation, Gateway, NoRoom};
use crate::wire_body::{WireBody, WireError};

/// Bytes of a refused body that are read for nothing, and for how long.
pub(crate) const DISCARDED_BYTES_MAX: u64 = 1 << 20;
pub(crate) const DISCARD_TIME_MAX: Duration = Duration::from_secs(1);
/// Room that is made for a body at once, whatever length its sender claims.
const FIRST_ROOM_MAX: usize = 256 << 10;
/// And at most so many times what is there: many that announce much and send little take little.
const ROOM_FACTOR: usize = 8;

/// A whole body in memory.
#[derive(Debug)]
pub(crate) struct Buffered {
    pub(crate) bytes: Bytes,
    /// How long its last byte was waited for.
    pub(crate) wait: Duration,
    /// Counts the memory; to be kept as long as the bytes are.
    pub(crate) reservations: Vec<BodyReservation>,
}

/// Reads a body to its end. One that arrives in one piece is not copied; a longer one is gathered
/// once.
///
/// # Errors
/// If it is too large, too slow, breaks off, or memory for bodies is used up, by all or by `holder`.
pub(crate) async fn buffer(
    gateway: &Arc<Gateway>,
    holder: Option<BodyHolder>,
    mut body: WireBody,
) -> Result<Buffered, GatewayError> {
    let limits = gateway.limits();
    let started = Instant::now();
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut reservations = Vec::new();
    let mut gathered = Gathered::default();
    let due = (started + limits.body_timeout).into();
    loop {
        let frame = match timeout_at(due, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Err(broken(&error)),
            Ok(None) => break,
            Err(_) => return Err(too_slow(limits.body_timeout)),
        };
        // Trailers of a request mean nothing to any protocol spoken here.
        let Ok(piece) = frame.into_data() else { continue };
        let length = piece.len() as u64;
        let whole = gathered.len() as u64 + length;
        if let Err(error) = refuse_oversize(whole, limits.body_bytes_max) {
            discard(body).await;
            return Err(error);
        }
        reservations.push(gateway.reserve_body((length, whole), holder).map_err(no_memory)?);
        gathered.add(piece, announced);
        if body.is_end_stream() {
            break;
        }
    }
    Ok(Buffered { bytes: gathered.into_bytes(), wait: started.elapsed(), reservations })
}

/// Refuses a body that announces more than is allowed, before anything of it is read.
///
/// # Errors
/// If it does.
pub(crate) async fn refuse_announced(
    body: WireBody,
    headers: &HeaderMap,
    bytes_max: u64,
) -> Result<WireBody, GatewayError> {
    let Err(error) = refuse_oversize(body.size_hint().lower(), bytes_max) else {
        return Ok(body);
    };
    // Who waits for 100 Continue sends nothing, and reading would tell it to.
    if !headers.contains_key(header::EXPECT) {
        discard(body).await;
    }
    Err(error)
}

/// Lets a refused client finish sending, within bounds. Closing a connection on bytes that nobody
/// read resets it, and the client may never see what it was told.
async fn discard(mut body: WireBody) {
    let reading = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, |piece| piece.len() as u64);
            if bytes > DISCARDED_BYTES_MAX || body.is_end_stream() {
                return;
            }
        }
    };
    // Whether it came to its end makes no difference.
    let _: Result<(), _> = timeout(DISCARD_TIME_MAX, reading).await;
}

/// Pieces of a body: the first is kept as it is until a second comes.
#[derive(Debug, Default)]
enum Gathered {
    #[default]
    Nothing,
    One(Bytes),
    Many(BytesMut),
}

impl Gathered {
    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::One(bytes) => bytes.len(),
            Self::Many(bytes) => bytes.len(),
        }
    }

    fn add(&mut self, piece: Bytes, announced: usize) {
        *self = match std::mem::take(self) {
            Self::Nothing => Self::One(piece),
            Self::One(first) => {
                let there = first.len() + piece.len();
                let room = announced.min(FIRST_ROOM_MAX).min(there * ROOM_FACTOR).max(there);
                let mut all = BytesMut::with_capacity(room);
                all.extend_from_slice(&first);
                all.extend_from_slice(&piece);
                Self::Many(all)
            }
            Self::Many(mut all) => {
                all.extend_from_slice(&piece);
                Self::Many(all)
            }
        };
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Nothing => Bytes::new(),
            Self::One(bytes) => bytes,
            Self::Many(bytes) => bytes.freeze(),
        }
    }
}

/// Refuses a body of at least `bytes`.
///
/// # Errors
/// If that is more than `bytes_max`.
pub(crate) fn refuse_oversize(bytes: u64, bytes_max: u64) -> Result<(), GatewayError> {
    if bytes <= bytes_max {
        return Ok(());
    }
    let message = format!("the request body is larger than the {bytes_max} bytes allowed here");
    Err(GatewayError::new(ErrorKind::BodyTooLarge, message))
}

pub(crate) fn too_slow(bound: Duration) -> GatewayError {
    let message = format!("the request body did not arrive within {} s", bound.as_secs_f32());
    GatewayError::new(ErrorKind::BodyTimeout, message)
}

fn broken(error: &WireError) -> GatewayError {
    GatewayError::new(ErrorKind::BadRequest, format!("the request body is broken: {error}"))
}

fn no_memory(no_room: NoRoom) -> GatewayError {
    let (kind, message) = match no_room {
        NoRoom::All => {
            (ErrorKind::Overloaded, "this node holds all the request bodies it may; try again")
        }
        NoRoom::Client => (
            ErrorKind::RateLimited,
            "this node holds as many of this client's request bodies as it may; wait for replies",
        ),
    };
    GatewayError::new(kind, message).with_shed(ShedReason::Memory.name())
}
