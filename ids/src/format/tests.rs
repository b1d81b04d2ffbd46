use super::*;

#[test]
fn the_text_of_each_built_in_format_is_its_full_text() {
    assert_eq!(Format::built_in().count(), 10);
    for (name, text) in Format::built_in() {
        let format = Format::parse(name).unwrap();
        assert_eq!(
            (format.to_string().as_str(), format.name()),
            (text, Some(name))
        );
        assert_eq!(Format::parse(text).unwrap(), format);
    }
}
