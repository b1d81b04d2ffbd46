//! Formats of ids: what they are, and what is in an id. Any node knows.

use ratchet_ids::Format;
use tokio::time::Instant;

use crate::{
    node::requests::operation::ByAskedNode,
    proto::{Refusal, refusal, v1},
};

impl ByAskedNode for v1::ListFormatsRequest {
    type Service = ();

    async fn carry_out(self, _: &(), _: Instant) -> Result<v1::ListFormatsResponse, Refusal> {
        let formats = Format::built_in().map(|(name, _)| Ok(told(&parsed(name)?)));
        let formats = formats.collect::<Result<_, Refusal>>()?;
        Ok(v1::ListFormatsResponse { formats })
    }
}

impl ByAskedNode for v1::GetFormatRequest {
    type Service = ();

    async fn carry_out(self, _: &(), _: Instant) -> Result<v1::Format, Refusal> {
        Ok(told(&parsed(&self.format)?))
    }
}

impl ByAskedNode for v1::DecodeIdRequest {
    type Service = ();

    async fn carry_out(self, _: &(), _: Instant) -> Result<v1::DecodedId, Refusal> {
        let format = parsed(&self.format)?;
        let decoded = format.decode(&self.id).map_err(|error| {
            refusal!(InvalidRequest, "it is no id of this format: {error}; the id is {:?}", self.id)
        })?;
        let fields = decoded.fields();
        Ok(v1::DecodedId {
            time: decoded.date_time().to_string(),
            time_ms: decoded.parts().time_ms,
            fields: fields.map(|(field, value)| (field.name().to_owned(), value)).collect(),
        })
    }
}

fn told(format: &Format) -> v1::Format {
    v1::Format {
        name: format.name().map(str::to_owned),
        format: format.to_string(),
        first: format.date_time(format.first_ms()).to_string(),
        last: format.date_time(format.last_ms()).to_string(),
    }
}

fn parsed(text: &str) -> Result<Format, Refusal> {
    Format::parse(text).map_err(|invalid| refusal!(InvalidRequest, "{invalid}"))
}
