//! Client of HTTP/2 that allocates nothing: it sends frames made before, and reads of replies only their
//! status and where they end.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const FRAME_HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
/// Flag of the last frame of a message, and of settings that were taken over.
const END_STREAM_OR_ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:status: 200` as its place in HPACK's fixed table.
const STATUS_200: u8 = 0x88;

/// Connection with its next stream.
pub(crate) struct Http2Client {
    tcp: TcpStream,
    stream: u32,
}

impl Http2Client {
    /// Begins a connection whose replies may be as many as they like.
    pub(crate) async fn start(address: SocketAddr, buffer: &mut [u8]) -> Self {
        let mut tcp = TcpStream::connect(address).await.expect("connects");
        let window = frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
        let begin =
            [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[]), window];
        tcp.write_all(&begin.concat()).await.expect("sends");
        let mut client = Self { tcp, stream: 1 };
        while client.read_frame(buffer).await.kind != SETTINGS {}
        let taken_over = frame(SETTINGS, END_STREAM_OR_ACK, 0, &[]);
        client.tcp.write_all(&taken_over).await.expect("sends");
        client
    }

    /// Sends a request of [`request`] and reads its reply. Returns true if its status is 200.
    pub(crate) async fn ask(&mut self, request: &mut [u8], buffer: &mut [u8]) -> bool {
        let mut at = 0;
        while at < request.len() {
            let length = usize::from(u16::from_be_bytes([request[at + 1], request[at + 2]]));
            request[at + 5..at + FRAME_HEAD_BYTES].copy_from_slice(&self.stream.to_be_bytes());
            at += FRAME_HEAD_BYTES + length;
        }
        self.tcp.write_all(request).await.expect("sends");
        let mut is_ok = false;
        loop {
            let frame = self.read_frame(buffer).await;
            if frame.stream != self.stream {
                continue;
            }
            is_ok |= frame.kind == HEADERS && buffer[0] == STATUS_200;
            if matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM_OR_ACK != 0 {
                self.stream += 2;
                return is_ok;
            }
        }
    }

    /// Reads one frame, with its payload at the begin of the buffer.
    async fn read_frame(&mut self, buffer: &mut [u8]) -> Frame {
        let mut head = [0; FRAME_HEAD_BYTES];
        self.tcp.read_exact(&mut head).await.expect("a frame");
        let [long, high, low, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, long, high, low]) as usize;
        self.tcp.read_exact(&mut buffer[..length]).await.expect("its payload");
        Frame { kind, flags, stream: u32::from_be_bytes(stream) }
    }
}

/// Head of a frame.
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
}

/// Returns the frames of a request with this JSON, of at most 16 KB. They lack the stream.
pub(crate) fn request(body: &[u8]) -> Vec<u8> {
    // `:method: POST` and `:scheme: http` as their places in HPACK's fixed table.
    let mut fields = vec![0x83, 0x86];
    // The others by the place of their name, with a text of their own that the server need not keep.
    let length = body.len().to_string();
    let places: [(&[u8], &str); 5] = [
        (&[4], "/v1/chat/completions"),
        (&[1], "gateway"),
        (&[15, 31 - 15], "application/json"),
        (&[15, 28 - 15], &length),
        (&[15, 58 - 15], "test"),
    ];
    for (place, text) in places {
        fields.extend_from_slice(place);
        fields.push(u8::try_from(text.len()).expect("short"));
        fields.extend_from_slice(text.as_bytes());
    }
    [frame(HEADERS, END_HEADERS, 0, &fields), frame(DATA, END_STREAM_OR_ACK, 0, body)].concat()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}
