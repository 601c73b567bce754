//! Downloads of blobs, which go on where they broke off.

use std::io::Read;

use ureq::Body;
use ureq::http::Response;

use super::{RegistryClient, RegistryError, with_retries};
use crate::manifest::Descriptor;
use crate::progress::Piece;
use crate::store::BlobWriter;

const BUFFER_BYTES: usize = 128 * 1024;

impl RegistryClient {
    /// Writes the blob's bytes; whoever commits the writer checks them.
    pub(crate) fn download(
        &self,
        blob: &Descriptor,
        into: &mut BlobWriter,
        piece: &Piece<'_>,
    ) -> Result<(), RegistryError> {
        let path = format!("/v2/{}/blobs/{}", self.repository, blob.digest);
        with_retries(|| {
            let resume_at = into.written();
            let range = format!("bytes={resume_at}-");
            let headers = [("range", range.as_str())];
            let response = self.get(&path, if resume_at > 0 { &headers } else { &[] })?;
            match response.status().as_u16() {
                206 if resumes_at(&response, resume_at) => {}
                // The server does not do ranges: take it from the start.
                200 => into.restart()?,
                206 => return Err(self.unexpected(206)),
                404 => return Err(self.not_found(&blob.digest.to_string())),
                status => return Err(self.unexpected(status)),
            }
            self.copy(response, into, piece)?;
            if into.written() < blob.size {
                let source = std::io::ErrorKind::UnexpectedEof.into();
                return Err(self.interrupted(into.written(), source));
            }
            Ok(())
        })
    }

    fn copy(
        &self,
        response: Response<Body>,
        into: &mut BlobWriter,
        piece: &Piece<'_>,
    ) -> Result<(), RegistryError> {
        let mut body = response.into_body().into_reader();
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match body.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    into.write(&buffer[..count])?;
                    piece.advance(count as u64).map_err(|_| RegistryError::GivenUp)?;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.interrupted(into.written(), error)),
            }
        }
    }

    fn interrupted(&self, bytes: u64, source: std::io::Error) -> RegistryError {
        RegistryError::Interrupted { host: self.endpoint.to_string(), bytes, source }
    }
}

/// Whether a partial answer begins where we asked for it: `Content-Range: bytes 5-9/10`.
fn resumes_at(response: &Response<Body>, offset: u64) -> bool {
    let range = response.headers().get("content-range").and_then(|value| value.to_str().ok());
    range
        .and_then(|text| text.strip_prefix("bytes "))
        .and_then(|text| text.split('-').next())
        .and_then(|start| start.trim().parse::<u64>().ok())
        == Some(offset)
}
