"""Commands as they are typed."""

from ablation.cli.main import main


def typed(capsys, *words):
    """Status, output and errors of a command."""
    capsys.readouterr()  # of what came before
    status = main([str(word) for word in words])
    return status, *capsys.readouterr()


def output(capsys, *words, status=0):
    """What a command prints that ends with this status."""
    ended, out, err = typed(capsys, *words)
    assert ended == status, err
    return out


def refused(capsys, *words):
    """The one line by which a command is refused, with status 2, that prints nothing else."""
    status, out, err = typed(capsys, *words)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    return err.rstrip("\n")
