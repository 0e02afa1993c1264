"""Texts of graphs are compared by operators and by the first line that differs."""

from __future__ import annotations

from neuron_compile.cache.graph_difference import distance, first_line, operators

ADD = "%0 = placeholder()\n%1 = aten::add.Tensor(%0, 1)\n%2 = output((%1))"
SUB = "%0 = placeholder()\n%1 = aten::sub.Tensor(%0, 1)\n%2 = output((%1))"
ADD_TWO = ADD.replace(", 1)", ", 2)")
TWO_INPUTS = "%0 = placeholder()\n%1 = placeholder()\n%2 = aten::add.Tensor(%0, %1)"


def test_other_operators_are_named_with_their_number() -> None:
    assert operators(ADD, SUB) == ("aten::add.Tensor", "aten::sub.Tensor")
    assert distance(ADD, SUB) == 2


def test_operators_that_one_graph_has_more_of_are_counted() -> None:
    more = "\n".join([ADD, *["%3 = aten::exp(%2)"] * 3])
    assert operators(more, ADD) == ("aten::exp x3", "")


def test_inputs_are_called_so() -> None:
    assert operators(TWO_INPUTS, ADD) == ("input", "")


def test_other_arguments_are_seen_in_the_first_line_that_differs() -> None:
    assert operators(ADD, ADD_TWO) == ("", "")
    assert distance(ADD, ADD_TWO) == 0
    assert first_line(ADD, ADD_TWO) == (
        2,
        "%1 = aten::add.Tensor(%0, 1)",
        "%1 = aten::add.Tensor(%0, 2)",
    )


def test_equal_texts_have_no_line_that_differs() -> None:
    assert first_line(ADD, ADD) is None


def test_a_graph_that_has_ended_has_an_empty_line() -> None:
    assert first_line("a", "a\nb") == (2, "", "b")


def test_many_kinds_of_operators_are_cut() -> None:
    text = "\n".join(f"%{i} = op{i}()" for i in range(9))
    assert operators(text, "")[0].endswith("op5, and 3 more")


def test_any_text_will_do() -> None:
    assert operators("no graph", "%1 = ") == ("", "")
