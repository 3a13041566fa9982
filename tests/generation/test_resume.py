import json

import pytest

from regard.errors import FileError, InputError
from regard.generation.bulk import Begun, Output, Reading, Remaining


def test_whole_lines_are_records_and_a_torn_one_is_not(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"eins\n\nzwei\ndr")
    assert Output(path, {}).begun() == Begun(3, 11)
    path.write_bytes(b"")
    assert Output(path, {}).begun() == Begun(0, 0)
    path.write_bytes(b"torn")
    assert Output(path, {}).begun() == Begun(0, 0)
    assert Output(tmp_path / "absent", {}).begun() == Begun(0, 0)


def test_of_numbered_records_the_last_is_written_again(tmp_path):
    path = tmp_path / "out"
    whole = b"0 ||| a ||| -1\n0 ||| b ||| -2\n1 ||| c ||| -1\n1 ||| d ||| -2\n"
    for torn in (b"2 ||| e ||| -1\n", b"2 ||| e", b"2 ||| e ||| -1\n2 ||| f ||| -2\n"):
        path.write_bytes(whole + torn)
        begun = Output(path, {}, numbered=True).begun()
        expected = Begun(2, len(whole)) if b"\n" in torn else Begun(1, 30)
        assert begun == expected


def test_what_was_written_before_stays_and_what_was_torn_goes(tmp_path):
    path = tmp_path / "out"
    path.write_text("eins\nzw")
    output = Output(path, {"beam": 4})
    with output.written_from(output.begun()):
        output.write("zwei\n")
        assert path.read_text() == "eins\nzwei\n"
        assert json.loads(output.notes.read_text()) == {"beam": 4}
    assert path.read_text() == "eins\nzwei\n"
    assert not output.notes.exists()


def test_a_run_from_the_beginning_leaves_nothing_of_the_old(tmp_path):
    path = tmp_path / "deep" / "out"
    for text in ("a long text\n", "short\n"):
        output = Output(path, {})
        with output.written_from(Begun(0, 0)):
            output.write(text)
        assert path.read_text() == text


def test_a_run_that_fails_leaves_its_notes(tmp_path):
    output = Output(tmp_path / "out", {"beam": 4})

    def interrupted():
        with output.written_from(Begun(0, 0)):
            output.note(heads=[1])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert output.noted() == {"beam": 4, "heads": [1]}


def test_no_other_run_goes_on_with_a_file(tmp_path):
    path = tmp_path / "out"
    path.write_text("eins\n")
    (tmp_path / ".out.run").write_text('{"beam": 4, "unknown": 1}')
    assert Output(path, {"beam": 4}).begun() == Begun(1, 5)
    with pytest.raises(InputError, match="begun with beam 4, and now beam is 5: go on with the"):
        Output(path, {"beam": 5}).begun()
    (tmp_path / ".out.run").write_text("damaged")
    assert Output(path, {"beam": 5}).begun() == Begun(1, 5)


def test_two_processes_never_write_one_file(tmp_path):
    first, second = (Output(tmp_path / "out", {}) for _ in range(2))
    with first.written_from(Begun(0, 0)):
        first.write("mine\n")
        with pytest.raises(FileError, match="being written by another process"):
            second.written_from(Begun(0, 0)).__enter__()
    assert (tmp_path / "out").read_text() == "mine\n"


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"file/out cannot be written"):
        Output(tmp_path / "file" / "out", {}).written_from(Begun(0, 0)).__enter__()


@pytest.mark.parametrize(
    ("done", "numbers", "skip"), [(0, 0, 0), (3, 0, 3), (4, 4, 0), (6, 4, 2), (10, 10, 0)]
)
def test_windows_that_are_done_are_left_out_and_others_stay_whole(tmp_path, done, numbers, skip):
    path = tmp_path / "in"
    path.write_text("".join(f"{i}\n" for i in range(10)))
    left = Remaining(done, Reading(str(path)))
    windows = list(left.windows(4))
    every = [[str(i) for i in part] for part in (range(4), range(4, 8), range(8, 10))]
    assert windows == [window for window in every if int(window[-1]) >= done]
    assert (left.number, left.skip) == (numbers, skip)
    left.check(path)


def test_an_output_of_another_input_is_refused(tmp_path):
    path = tmp_path / "in"
    path.write_text("one\n")
    left = Remaining(5, Reading(str(path)))
    assert list(left.windows(4)) == []
    with pytest.raises(InputError, match="has 5 lines, but the input has only 1"):
        left.check(tmp_path / "out")
