//! The formats that have a name. Pure.

/// Name and text of each.
pub const FORMATS: [(&str, &str); 10] = [
    // Yuewen's route id, `343429497-9998-01-1-00`. Its counter spreads rows evenly over tables.
    (
        "yuewen-route",
        "digits epoch=2015-01-01 offset=+08:00 text=groups counter=runs-on counter-per=type time-s:10 sequence:4 type:2 worker:1 database:2",
    ),
    // The ids of Yuewen's published code: one number, with the machine before the counter.
    (
        "yuewen-published",
        "digits epoch=2015-01-01 offset=+08:00 counter=runs-on time-s:10 worker:2 sequence:4 database:2",
    ),
    // Yuewen's id that increases across servers, within each type.
    (
        "yuewen-strict",
        "digits epoch=2015-01-01 offset=+08:00 text=groups time-s:10 sequence:4 key:2 machine:1 database:2",
    ),
    // Yuewen's chapter id, `20160423-000-00-000100`.
    (
        "yuewen-chapter",
        "digits offset=+08:00 text=groups step=100 date:8 table:3 database:2 sequence:6",
    ),
    // Yuewen's id of an exception.
    (
        "yuewen-exception",
        "bits epoch=2015-01-01 offset=+08:00 time-s:32 worker:4 type:10 sequence:14",
    ),
    // Twitter's and Leaf's.
    ("snowflake", "bits epoch=1288834974657 zero:1=0 time-ms:41 worker:10 sequence:12"),
    // The default of Baidu's UidGenerator. It ended on 2024-11-20.
    (
        "uid-generator",
        "bits epoch=2016-05-20 offset=+08:00 zero:1=0 time-s:28 worker:22 sequence:13",
    ),
    // RongCloud's message id, `BD8U-FCOJ-LDC5-L789`. The key is the conversation.
    ("rongcloud", "bits text=base32 time-ms:42 sequence:12 type:4 key:22"),
    // The same, in the letters that RongCloud's article names.
    ("rongcloud-article", "bits text=base32-unambiguous time-ms:42 sequence:12 type:4 key:22"),
    // RFC 9562, version 7, with a counter and a worker in the bits that may be random.
    ("uuid7", "bits text=uuid time-ms:48 version:4=7 sequence:12 variant:2=2 worker:14 random:48"),
];

/// The text of the format with this name.
pub fn text(name: &str) -> Option<&'static str> {
    let found = FORMATS.into_iter().find(|(own, _)| *own == name);
    found.map(|(_, text)| text)
}
