from write_cli_docs import PAGE, hand_written_part, render


def test_docs_say_what_help_says() -> None:
    page = PAGE.read_text()
    assert page == render(hand_written_part(page)), "run `make docs`"
