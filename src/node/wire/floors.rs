//! The messages that raise floors and read many keys, and the requests and answers that they stand for: both ways.

use super::{key_of, keys_of, known, to_key, to_keys};
use crate::{
    allocator::{FloorOf, Raised},
    node::{
        floors::{CurrentMany, LastNumbers, Raise, RaiseMany},
        request::Answered,
        route::Route,
    },
    proto::{Refusal, v1},
};

impl TryFrom<v1::RaiseRequest> for Raise {
    type Error = Refusal;

    fn try_from(message: v1::RaiseRequest) -> Result<Raise, Refusal> {
        Ok(Raise {
            key: key_of(message.key)?,
            namespace: message.namespace,
            at_least: message.at_least,
            known: known(message.route_version, message.members_version),
        })
    }
}

impl From<&Raise> for v1::RaiseRequest {
    fn from(request: &Raise) -> Self {
        v1::RaiseRequest {
            namespace: request.namespace.clone(),
            key: to_key(&request.key),
            at_least: request.at_least,
            route_version: request.known.version,
            members_version: request.known.members_version,
        }
    }
}

impl From<v1::RaiseResponse> for Answered<Raised> {
    fn from(message: v1::RaiseResponse) -> Self {
        Answered {
            answer: Raised { floor: message.floor, is_higher: message.raised, passed: 0 },
            route: message.route.map(Route::from),
        }
    }
}

impl From<Answered<Raised>> for v1::RaiseResponse {
    fn from(Answered { answer, route }: Answered<Raised>) -> Self {
        v1::RaiseResponse {
            floor: answer.floor,
            raised: answer.is_higher,
            route: route.map(v1::Route::from),
        }
    }
}

impl TryFrom<v1::RaiseManyRequest> for RaiseMany {
    type Error = Refusal;

    fn try_from(message: v1::RaiseManyRequest) -> Result<RaiseMany, Refusal> {
        let keys = keys_of(message.ids, message.names)?;
        let known = known(message.route_version, message.members_version);
        RaiseMany::new(message.namespace, keys, message.at_least, FloorOf::Key, known)
    }
}

impl TryFrom<v1::RaiseSectionsRequest> for RaiseMany {
    type Error = Refusal;

    fn try_from(message: v1::RaiseSectionsRequest) -> Result<RaiseMany, Refusal> {
        let keys = keys_of(message.ids, Vec::new())?;
        let known = known(message.route_version, message.members_version);
        let of = FloorOf::Section;
        RaiseMany::new(message.namespace, keys, message.at_least, of, known)
    }
}

impl From<&RaiseMany> for v1::RaiseManyRequest {
    fn from(request: &RaiseMany) -> Self {
        let (ids, names) = to_keys(&request.keys);
        v1::RaiseManyRequest {
            namespace: request.namespace.clone(),
            ids,
            names,
            at_least: request.at_least.clone(),
            route_version: request.known.version,
            members_version: request.known.members_version,
        }
    }
}

impl From<&RaiseMany> for v1::RaiseSectionsRequest {
    fn from(request: &RaiseMany) -> Self {
        // Names have no sections that they share.
        let (ids, _) = to_keys(&request.keys);
        v1::RaiseSectionsRequest {
            namespace: request.namespace.clone(),
            ids,
            at_least: request.at_least.clone(),
            route_version: request.known.version,
            members_version: request.known.members_version,
        }
    }
}

impl From<v1::RaiseManyResponse> for Answered<Vec<u64>> {
    fn from(message: v1::RaiseManyResponse) -> Self {
        Answered { answer: message.floors, route: message.route.map(Route::from) }
    }
}

impl From<Answered<Vec<u64>>> for v1::RaiseManyResponse {
    fn from(Answered { answer, route }: Answered<Vec<u64>>) -> Self {
        v1::RaiseManyResponse { floors: answer, route: route.map(v1::Route::from) }
    }
}

impl TryFrom<v1::CurrentManyRequest> for CurrentMany {
    type Error = Refusal;

    fn try_from(message: v1::CurrentManyRequest) -> Result<CurrentMany, Refusal> {
        let keys = keys_of(message.ids, message.names)?;
        let known = known(message.route_version, message.members_version);
        CurrentMany::new(message.namespace, keys, known)
    }
}

impl From<&CurrentMany> for v1::CurrentManyRequest {
    fn from(request: &CurrentMany) -> Self {
        let (ids, names) = to_keys(&request.keys);
        v1::CurrentManyRequest {
            namespace: request.namespace.clone(),
            ids,
            names,
            route_version: request.known.version,
            members_version: request.known.members_version,
        }
    }
}

impl From<v1::CurrentManyResponse> for Answered<LastNumbers> {
    fn from(message: v1::CurrentManyResponse) -> Self {
        Answered { answer: LastNumbers(message.last), route: message.route.map(Route::from) }
    }
}

impl From<Answered<LastNumbers>> for v1::CurrentManyResponse {
    fn from(Answered { answer, route }: Answered<LastNumbers>) -> Self {
        v1::CurrentManyResponse { last: answer.0, route: route.map(v1::Route::from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{node::SequenceRequest, proto::peer::forward_request::Request as Forward};

    #[test]
    fn a_request_about_floors_that_is_forwarded_is_the_request_that_came() {
        let raise = v1::RaiseRequest {
            namespace: "book".into(),
            key: Some(v1::Key { kind: Some(v1::key::Kind::Id(9)) }),
            at_least: 1_000,
            route_version: 3,
            members_version: Some(4),
        };
        let request = Raise::try_from(raise.clone()).unwrap();
        assert_eq!(v1::RaiseRequest::from(&request), raise);
        let many = v1::RaiseManyRequest {
            namespace: "book".into(),
            ids: vec![1, 2],
            names: Vec::new(),
            at_least: vec![5, 6],
            route_version: 3,
            members_version: None,
        };
        let request = RaiseMany::try_from(many.clone()).unwrap();
        assert_eq!(v1::RaiseManyRequest::from(&request), many);
        assert!(matches!(request.to_forward(), Forward::RaiseMany(to) if to == many));
        let sections = v1::RaiseSectionsRequest {
            namespace: "book".into(),
            ids: vec![1, 2],
            at_least: vec![5, 6],
            route_version: 3,
            members_version: None,
        };
        let request = RaiseMany::try_from(sections.clone()).unwrap();
        assert!(matches!(request.to_forward(), Forward::RaiseSections(to) if to == sections));
        let current = v1::CurrentManyRequest {
            namespace: "book".into(),
            ids: Vec::new(),
            names: vec!["k".into()],
            route_version: 3,
            members_version: None,
        };
        let request = CurrentMany::try_from(current.clone()).unwrap();
        assert_eq!(v1::CurrentManyRequest::from(&request), current);
    }

    #[test]
    fn an_answer_about_floors_that_was_forwarded_is_the_answer_that_the_leader_gave() {
        let raised = v1::RaiseResponse { floor: 7, raised: true, route: None };
        let answer = Answered::<Raised>::from(raised.clone());
        assert_eq!(v1::RaiseResponse::from(answer), raised);
        let last = v1::CurrentManyResponse { last: vec![0, 5], route: None };
        let answer = Answered::<LastNumbers>::from(last.clone());
        assert_eq!(v1::CurrentManyResponse::from(answer), last);
    }

    #[test]
    fn a_request_to_raise_many_needs_a_floor_for_each_key() {
        let refused = RaiseMany::try_from(v1::RaiseManyRequest {
            ids: vec![1, 2],
            at_least: vec![5],
            ..v1::RaiseManyRequest::default()
        });
        let message = refused.unwrap_err().message().to_owned();
        assert!(message.contains("2 keys and 1 floors"), "{message}");
        let refused = CurrentMany::try_from(v1::CurrentManyRequest::default());
        let message = refused.unwrap_err().message().to_owned();
        assert!(message.contains("has 0 keys"), "{message}");
    }
}
