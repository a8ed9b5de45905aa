//! Smallest picture that every reader accepts: one colour.

use std::io::Write as _;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

/// Returns a PNG of `side` × `side` pixels in one colour.
pub(crate) fn square(side: u8, colour: [u8; 3]) -> Vec<u8> {
    let mut rows = Vec::new();
    for _ in 0..side {
        let no_filter = [0];
        rows.extend(no_filter);
        rows.extend(colour.repeat(usize::from(side)));
    }
    let size = u32::from(side).to_be_bytes();
    let mut header = Vec::new();
    header.extend(size);
    header.extend(size);
    header.extend([8, 2, 0, 0, 0]); // 8 bits a channel, RGB
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    push_chunk(&mut png, *b"IHDR", &header);
    push_chunk(&mut png, *b"IDAT", &zlib(&rows));
    push_chunk(&mut png, *b"IEND", &[]);
    png
}

fn push_chunk(png: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) {
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    png.extend(length.to_be_bytes());
    let start = png.len();
    png.extend(kind);
    png.extend(data);
    let mut checksum = Crc::new();
    checksum.update(&png[start..]);
    png.extend(checksum.sum().to_be_bytes());
}

/// Returns the data as a zlib stream.
fn zlib(data: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    // Memory takes all that is written.
    drop(encoder.write_all(data));
    encoder.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_ends_as_every_png_does() {
        let png = square(8, [1, 2, 3]);
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x08\0\0\0\x08"));
        assert!(png.ends_with(b"\0\0\0\0IEND\xAE\x42\x60\x82"));
    }
}
